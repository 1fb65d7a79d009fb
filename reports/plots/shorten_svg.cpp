#include "reports/plots/shorten_svg.h"

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace reports {
namespace {

using Inherited = std::map<std::string, std::string, std::less<>>;

/// Attributes that children inherit, and what most of a drawing sets them to.
const Inherited& common() {
  static const Inherited all = {{"fill", "none"},      {"stroke", "currentColor"},
                                {"stroke-width", "1"}, {"font-size", "13"},
                                {"text-anchor", ""},   {"stroke-linejoin", ""}};
  return all;
}

struct Number {
  double value = 0;
  size_t end = 0;  ///< behind its last character
};

/// The number that starts at text[at].
std::optional<Number> number_at(std::string_view text, size_t at) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), value);
  if (error != std::errc() || !std::isfinite(value) || std::abs(value) > 1e6) return std::nullopt;
  return Number{value, static_cast<size_t>(end - text.data())};
}

int64_t tenths(double value) { return std::llround(value * 10); }

/// "12.5", "-.5", "3".
std::string written(int64_t tenths) {
  const int64_t size = std::abs(tenths);
  std::string out = tenths < 0 ? "-" : "";
  if (size >= 10 || size == 0) out += std::to_string(size / 10);
  if (size % 10 != 0) out += "." + std::to_string(size % 10);
  return out;
}

/// Behind another number a minus sign separates, too.
void append_number(std::string& out, int64_t tenths) {
  const std::string number = written(tenths);
  if (!out.empty() && number[0] != '-' &&
      (std::isdigit(static_cast<unsigned char>(out.back())) != 0))
    out += ' ';
  out += number;
}

struct Step {
  char command = 'M';  ///< 'M' and 'L' as in a path
  int64_t x = 0, y = 0;
};

/// The steps of a path of absolute M and L; none if it has anything else.
std::vector<Step> steps_of(std::string_view path) {
  std::vector<Step> steps;
  for (size_t at = 0; at < path.size();) {
    if (path[at] == ' ') {
      ++at;
      continue;
    }
    const char command = path[at];
    const auto x = command == 'M' || command == 'L' ? number_at(path, at + 1) : std::nullopt;
    if (!x || x->end >= path.size() || path[x->end] != ',') return {};
    const auto y = number_at(path, x->end + 1);
    if (!y) return {};
    steps.push_back({command, tenths(x->value), tenths(y->value)});
    at = y->end;
  }
  return steps;
}

std::string short_path(std::string_view path) {
  const std::vector<Step> steps = steps_of(path);
  if (steps.empty() || steps[0].command != 'M') return std::string(path);
  std::string out;
  char last = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool moves = steps[i].command == 'M';
    if (moves && (i + 1 == steps.size() || steps[i + 1].command == 'M')) continue;  // draws nothing
    const Step from = moves ? Step() : steps[i - 1];
    const int64_t dx = steps[i].x - from.x, dy = steps[i].y - from.y;
    const char command = moves ? 'M' : dy == 0 ? 'h' : dx == 0 ? 'v' : 'l';
    if (command != last) out += command;
    if (command != 'v') append_number(out, dx);
    if (command != 'h') append_number(out, dy);
    last = command;
  }
  return out;
}

/// "translate(51.35,296.33)" and lists of points, with tenths.
std::string short_numbers(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const bool starts = text[at] == '-' || text[at] == '.' ||
                        std::isdigit(static_cast<unsigned char>(text[at])) != 0;
    const auto number = starts ? number_at(text, at) : std::nullopt;
    out += number ? written(tenths(number->value)) : std::string(1, text[at]);
    at = number ? number->end : at + 1;
  }
  return out;
}

/// "rgb( 47, 126, 216)" as "#2f7ed8"; other values as they are.
std::string short_colour(const std::string& value) {
  if (!value.starts_with("rgb(")) return value;
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out = "#";
  size_t at = 4;
  for (int i = 0; i < 3; ++i) {
    while (at < value.size() && (value[at] == ' ' || value[at] == ',')) ++at;
    const auto part = number_at(value, at);
    if (!part || part->value < 0 || part->value > 255) return value;
    const auto byte = static_cast<size_t>(part->value);
    out += kDigits[byte / 16], out += kDigits[byte % 16];
    at = part->end;
  }
  return out;
}

std::string short_width(const std::string& value) {
  const auto number = number_at(value, 0);
  if (!number || number->end != value.size()) return value;
  const std::string all = value.find('.') == std::string::npos
                              ? value
                              : value.substr(0, value.find_last_not_of('0') + 1);
  const std::string cut = all.ends_with('.') ? all.substr(0, all.size() - 1) : all;
  return cut.starts_with("0.") ? cut.substr(1) : cut;
}

void shorten_values(pugi::xml_node node) {
  for (pugi::xml_attribute a : node.attributes()) {
    const std::string_view name = a.name();
    const std::string value = a.value();
    if (name == "d") a.set_value(short_path(value).c_str());
    // A scale of a mark needs its digits; a place in the picture does not.
    if (name == "points" || (name == "transform" && value.find("scale") == std::string::npos))
      a.set_value(short_numbers(value).c_str());
    if (name == "fill" || name == "stroke" || name == "color")
      a.set_value(short_colour(value).c_str());
    if (name == "stroke-width" || name == "font-size" || name == "fill-opacity")
      a.set_value(short_width(value).c_str());
  }
}

bool is_group(pugi::xml_node node) { return std::string_view(node.name()) == "g"; }

/// A shape without fill and outline, as gnuplot's background is, or a mark of size 0.
bool is_invisible(pugi::xml_node node, const Inherited& around) {
  const std::string_view name = node.name();
  if (name == "use")
    return std::string_view(node.attribute("transform").value()).ends_with("scale(0.00)");
  if (name != "rect" && name != "path") return false;
  return std::string_view(node.attribute("fill").value()) == "none" && !node.attribute("stroke") &&
         !around.contains("stroke");
}

/// Gives the attributes of `group` to its only child: false where the child has others.
bool hand_down(pugi::xml_node group) {
  pugi::xml_node child = group.first_child();
  if (!child || child.next_sibling() || child.type() != pugi::node_element) return false;
  for (const char* adds_up : {"transform", "opacity"})
    if (group.attribute(adds_up) && child.attribute(adds_up)) return false;
  for (const pugi::xml_attribute a : group.attributes())
    if (!child.attribute(a.name())) child.append_attribute(a.name()).set_value(a.value());
  return true;
}

/// Puts the children of `group` in its place.
void dissolve(pugi::xml_node group) {
  pugi::xml_node parent = group.parent();
  while (pugi::xml_node child = group.first_child()) parent.insert_move_before(child, group);
  parent.remove_child(group);
}

class Shortener {
 public:
  /// `given` is what the elements around set, `in_force` that and what a browser begins with.
  void children(pugi::xml_node node, const Inherited& given, const Inherited& in_force) {
    for (pugi::xml_node child = node.first_child(); child;) {
      const pugi::xml_node next = child.next_sibling();
      if (child.type() == pugi::node_element && std::string_view(child.name()) != "defs") {
        if (is_invisible(child, given))
          node.remove_child(child);
        else
          element(child, given, in_force);
      }
      child = next;
    }
  }

 private:
  void element(pugi::xml_node node, Inherited given, Inherited in_force) {
    shorten_values(node);
    for (pugi::xml_attribute a = node.first_attribute(); a;) {
      const pugi::xml_attribute next = a.next_attribute();
      if (common().contains(a.name())) {
        given[a.name()] = a.value();
        std::string& now = in_force[a.name()];
        if (now == a.value()) {
          node.remove_attribute(a);
        } else {
          now = a.value();
        }
      }
      a = next;
    }
    children(node, given, in_force);
    if (!is_group(node)) return;
    if (!node.first_attribute() || hand_down(node)) dissolve(node);
  }
};

/// A path of one straight piece, along an axis: a line of the grid or the mark of a tick.
bool is_straight(std::string_view path) {
  const size_t step = path.find_first_of("hv");
  return path.starts_with('M') && step != std::string_view::npos &&
         path.find_first_not_of("-.0123456789", step + 1) == std::string_view::npos;
}

/// What an element looks like: all of its attributes but `place`.
std::string look_of(pugi::xml_node node, std::string_view place) {
  std::string look;
  for (const pugi::xml_attribute a : node.attributes())
    if (a.name() != place) look += std::string(a.name()) + "=" + a.value() + ";";
  return look;
}

/// Straight lines that look alike become one path, where the first of them stands.
void join_straight_lines(pugi::xml_node root) {
  std::map<std::string, pugi::xml_node> first;
  for (pugi::xml_node path = root.child("path"); path;) {
    const pugi::xml_node next = path.next_sibling("path");
    const std::string lines = path.attribute("d").value();
    if (is_straight(lines)) {
      const auto [known, is_new] = first.try_emplace(look_of(path, "d"), path);
      if (!is_new) {
        pugi::xml_attribute d = known->second.attribute("d");
        d.set_value((d.value() + lines).c_str());
        root.remove_child(path);
      }
    }
    path = next;
  }
}

/// "translate(51.4,296.3)" as the attributes x and y; other transforms as they are.
void place_text(pugi::xml_node text) {
  constexpr std::string_view kMove = "translate(";
  const std::string transform = text.attribute("transform").value();
  const size_t comma = transform.find(','), close = transform.find(')');
  if (!transform.starts_with(kMove) || comma > close || close + 1 != transform.size()) return;
  text.remove_attribute("transform");
  text.append_attribute("x").set_value(
      transform.substr(kMove.size(), comma - kMove.size()).c_str());
  text.append_attribute("y").set_value(transform.substr(comma + 1, close - comma - 1).c_str());
}

/// Words that look alike stand in one group, behind everything that is drawn.
void gather_words(pugi::xml_node root) {
  std::map<std::string, std::vector<pugi::xml_node>> alike;
  for (const pugi::xml_node text : root.children("text"))
    alike[look_of(text, "transform")].push_back(text);
  for (const auto& [look, texts] : alike) {
    pugi::xml_node group = root.append_child("g");
    for (const pugi::xml_attribute a : texts[0].attributes())
      if (std::string_view(a.name()) != "transform")
        group.append_attribute(a.name()).set_value(a.value());
    for (pugi::xml_node text : texts) {
      for (const pugi::xml_attribute a : group.attributes()) text.remove_attribute(a.name());
      place_text(text);
      group.append_move(text);
    }
    if (!group.first_attribute() || hand_down(group)) dissolve(group);
  }
}

/// Names of groups that nothing refers to: all of gnuplot's.
void remove_group_names(pugi::xml_node node) {
  if (is_group(node)) node.remove_attribute("id");
  for (const pugi::xml_node child : node.children()) remove_group_names(child);
}

}  // namespace

void shorten_svg(pugi::xml_node root) {
  remove_group_names(root);
  Shortener().children(root, {}, common());
  join_straight_lines(root);
  gather_words(root);
  for (const auto& [name, value] : common())
    if (!value.empty()) root.append_attribute(name.c_str()).set_value(value.c_str());
  while (pugi::xml_node empty = root.child("defs")) {
    if (empty.first_child()) break;
    root.remove_child(empty);
  }
}

}  // namespace reports

#include "reports/plots/svg.h"

#include <algorithm>
#include <array>
#include <pugixml.hpp>
#include <set>
#include <sstream>

#include "reports/plots/shorten_svg.h"

namespace reports {
namespace {

constexpr std::array<std::string_view, 13> kElements = {
    "svg",  "g",        "path",    "rect", "circle", "ellipse", "line",
    "text", "polyline", "polygon", "defs", "use",    "tspan"};
constexpr std::array<std::string_view, 37> kAttributes = {"viewBox",
                                                          "width",
                                                          "height",
                                                          "x",
                                                          "y",
                                                          "x1",
                                                          "y1",
                                                          "x2",
                                                          "y2",
                                                          "cx",
                                                          "cy",
                                                          "r",
                                                          "rx",
                                                          "ry",
                                                          "d",
                                                          "dx",
                                                          "dy",
                                                          "points",
                                                          "fill",
                                                          "fill-opacity",
                                                          "fill-rule",
                                                          "stroke",
                                                          "stroke-width",
                                                          "stroke-opacity",
                                                          "stroke-linecap",
                                                          "stroke-linejoin",
                                                          "stroke-dasharray",
                                                          "opacity",
                                                          "transform",
                                                          "font-family",
                                                          "font-size",
                                                          "font-weight",
                                                          "font-style",
                                                          "text-anchor",
                                                          "color",
                                                          "id",
                                                          "xlink:href"};

bool is_in(std::string_view what, const auto& list) {
  return std::ranges::find(list, what) != list.end();
}

/// Values of kept attributes hold numbers, words and colours; nothing that names a place elsewhere.
bool is_tame(std::string_view value) {
  return value.find("url") == std::string_view::npos && value.find(':') == std::string_view::npos &&
         value.find('&') == std::string_view::npos && value.find('\\') == std::string_view::npos;
}

/// gnuplot pads its colours: "rgb(  1,   2,   3)".
std::string packed(std::string_view value) {
  std::string out;
  for (const char c : value)
    if (c != ' ') out += c;
  return out;
}

/// Attributes that can be left out: SVG's own defaults, and the font of the whole picture.
bool is_default(std::string_view attribute, std::string_view value) {
  return (attribute == "stroke-linecap" && value == "butt") ||
         (attribute == "stroke-linejoin" && value == "miter") || attribute == "font-family";
}

/// Names that elements below `node` refer to.
void add_references(pugi::xml_node node, std::set<std::string>& names) {
  if (const pugi::xml_attribute href = node.attribute("href")) names.insert(href.value() + 1);
  for (const pugi::xml_node child : node.children()) add_references(child, names);
}

/// gnuplot defines every mark that it knows; few are drawn. Marks refer to one another, so that
/// what is left is looked at again until nothing goes.
void remove_unused_marks(pugi::xml_node root) {
  pugi::xml_node marks;
  for (const pugi::xml_node group : root.children("g"))
    if (group.child("defs")) marks = group.child("defs");
  if (root.child("defs")) marks = root.child("defs");
  for (bool removed = true; removed;) {
    removed = false;
    std::set<std::string> used;
    add_references(root, used);
    for (pugi::xml_node mark = marks.first_child(); mark;) {
      const pugi::xml_node next = mark.next_sibling();
      if (!used.contains(mark.attribute("id").value())) removed |= marks.remove_child(mark);
      mark = next;
    }
  }
}

class Cleaner {
 public:
  explicit Cleaner(std::string name) : name_(std::move(name)) {}

  void clean(pugi::xml_node node) {
    clean_attributes(node);
    for (pugi::xml_node child = node.first_child(); child;) {
      const pugi::xml_node next = child.next_sibling();
      const bool text = child.type() == pugi::node_pcdata;
      const bool element = child.type() == pugi::node_element && is_in(child.name(), kElements);
      if (element) clean(child);
      const bool hollow = element && std::string_view(child.name()) == "g" && !child.first_child();
      if ((!text && !element) || hollow) node.remove_child(child);
      child = next;
    }
  }

 private:
  void clean_attributes(pugi::xml_node node) {
    for (pugi::xml_attribute a = node.first_attribute(); a;) {
      const pugi::xml_attribute next = a.next_attribute();
      if (!is_in(a.name(), kAttributes) || !keep(a)) node.remove_attribute(a);
      a = next;
    }
  }

  bool keep(pugi::xml_attribute a) const {
    const std::string_view attribute = a.name();
    const std::string value = a.value();
    if (!is_tame(value) || is_default(attribute, value)) return false;
    if (attribute == "d")
      return a.set_value(value.substr(0, value.find_last_not_of(' ') + 1).c_str());
    if (attribute == "id") return a.set_value((name_ + "-" + value).c_str());
    if (attribute == "xlink:href") {
      if (!value.starts_with('#')) return false;
      return a.set_name("href") && a.set_value(("#" + name_ + "-" + value.substr(1)).c_str());
    }
    const std::string colour = packed(value);
    if (attribute == "color" && (colour == "black" || colour == "white" || colour == "gray"))
      return false;  // gnuplot's own default: the page decides
    if (colour == "rgb(1,2,3)" || colour == "black") return a.set_value("currentColor");
    return true;
  }

  std::string name_;
};

}  // namespace

std::string clean_svg(std::string_view drawn, const std::string& name, const std::string& title) {
  pugi::xml_document document;
  if (!document.load_buffer(drawn.data(), drawn.size(), pugi::parse_default, pugi::encoding_utf8))
    return "";
  pugi::xml_node root = document.child("svg");
  if (!root) return "";
  Cleaner(name).clean(root);
  remove_unused_marks(root);
  shorten_svg(root);
  root.prepend_attribute("xmlns").set_value("http://www.w3.org/2000/svg");
  root.append_attribute("role").set_value("img");
  root.append_attribute("aria-label").set_value(title.c_str());
  root.append_attribute("font-family").set_value("DejaVu Sans, sans-serif");
  // As a picture in Markdown: to be read on white and on black. A page of ours sets its own.
  root.append_attribute("color").set_value("#777");
  std::ostringstream out;
  root.print(out, "", pugi::format_raw);
  return out.str();
}

}  // namespace reports

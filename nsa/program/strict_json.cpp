#include "nsa/program/strict_json.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace nsa {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

/// Values are copied, moved and printed by recursion, so text that nests deeper could end the
/// program.
constexpr int kMaxDepth = 64;

/// Parser callback that throws where values nest too deep, and at the second occurrence of a key in
/// one object.
class StrictText {
 public:
  explicit StrictText(std::string where) : where_(std::move(where)) {}

  bool operator()(int depth, nlohmann::json::parse_event_t event, const nlohmann::json& parsed) {
    using Event = nlohmann::json::parse_event_t;
    if (depth > kMaxDepth)
      throw InputError(where_ + ": nests deeper than " + std::to_string(kMaxDepth) + " levels");
    if (event == Event::object_start) open_.emplace_back();
    if (event == Event::object_end) open_.pop_back();
    if (event == Event::key && !open_.back().insert(parsed.get<std::string>()).second)
      throw InputError(where_ + ": key " + parsed.dump() + " is given twice in one object");
    return true;
  }

 private:
  std::string where_;
  std::vector<std::set<std::string>> open_;
};

}  // namespace

nlohmann::json parse_strict_json(std::string_view text, const std::string& where) {
  try {
    return nlohmann::json::parse(text, StrictText(where));
  } catch (const nlohmann::json::exception& e) {
    throw InputError(where + ": not valid JSON: " + e.what());
  }
}

std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) best = candidate, best_distance = distance;
  }
  return best;
}

StrictObject::StrictObject(const nlohmann::json& object, std::string where, std::string_view text)
    : object_(object), where_(std::move(where)), text_(text) {
  if (!object.is_object())
    fail(object, "expected an object, got " + std::string(object.type_name()));
}

StrictObject StrictObject::child(const std::string& key) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) fail(object_, "key \"" + key + "\" is missing");
  if (!value->is_object())
    fail(*value, "\"" + key + "\" must be an object, got " + value->type_name());
  return StrictObject(*value, where_, text_);
}

void StrictObject::finish() const {
  for (const auto& [key, value] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    const std::string nearest = nearest_name(key, known_);
    fail(value, "unknown key \"" + key + "\"" +
                    (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
  }
}

void StrictObject::fail(const nlohmann::json& at, const std::string& message) const {
  const size_t offset = at.start_pos();
  throw InputError(where_ + (offset < text_.size() ? position(offset) : "") + ": " + message);
}

const nlohmann::json* StrictObject::find(const std::string& key) {
  known_.push_back(key);
  const auto it = object_.find(key);
  return it == object_.end() ? nullptr : &*it;
}

std::string StrictObject::position(size_t offset) const {
  const std::string_view before = text_.substr(0, offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t line_start =
      before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  return ":" + std::to_string(line) + ":" + std::to_string(offset - line_start + 1);
}

}  // namespace nsa

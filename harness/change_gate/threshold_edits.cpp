#include "harness/change_gate/threshold_edits.h"

#include <nlohmann/json.hpp>

#include "base/json/depth.h"

namespace harness {
namespace {

using nlohmann::json;

constexpr const char* kCriterionKeys[] = {"metric", "op", "value", "unit", "severity", "evidence"};
constexpr const char* kPhaseKeys[] = {
    "run",           "args",      "free",    "cases",          "device",  "processes",
    "max_processes", "confirm",   "needs",   "needs_criteria", "require", "on_unmet",
    "required",      "timeout_s", "retries", "artifacts",      "switches"};
constexpr const char* kBookKeys[] = {"extends", "device", "hardware", "seed"};

/// Discarded when it is no JSON of ours.
json parsed(std::string_view text) {
  if (base::nests_too_deep(text)) return json(json::value_t::discarded);
  return json::parse(text, nullptr, false, /*ignore_comments=*/true);
}

std::string shown(const json& object, const char* key) {
  return object.contains(key) ? object[key].dump(-1, ' ', false, json::error_handler_t::replace)
                              : "";
}

const json* by_id(const json& list, const json& id) {
  if (list.is_array())
    for (const json& item : list)
      if (item.is_object() && item.value("id", json()) == id) return &item;
  return nullptr;
}

template <size_t kCount>
void compare(const std::string& where, const char* const (&keys)[kCount], const json& before,
             const json& after, std::vector<ThresholdEdit>& edits) {
  for (const char* key : keys)
    if (shown(before, key) != shown(after, key))
      edits.push_back({where + key, shown(before, key), shown(after, key)});
}

/// Calls `both` for every item of `before` that `after` has too, and lists the others.
template <class Both>
void match(const std::string& where, const json& before, const json& after,
           std::vector<ThresholdEdit>& edits, Both both) {
  if (!before.is_array()) return;
  for (const json& item : before) {
    if (!item.is_object()) continue;
    const std::string name = where + item.value("id", json()).dump();
    if (const json* now = by_id(after, item.value("id", json())))
      both(name + ": ", item, *now);
    else
      edits.push_back({name, "there", "removed"});
  }
}

}  // namespace

std::vector<ThresholdEdit> runbook_edits(std::string_view before,
                                         const std::optional<std::string>& after) {
  if (!after) return {{"runbook", "there", "removed"}};
  const json old_book = parsed(before), new_book = parsed(*after);
  if (!old_book.is_object() || !new_book.is_object())
    return {{"runbook", old_book.is_object() ? "JSON" : "not JSON",
             new_book.is_object() ? "JSON" : "not JSON"}};
  std::vector<ThresholdEdit> edits;
  compare("", kBookKeys, old_book, new_book, edits);
  const auto list = [](const json& object, const char* key) {
    return object.value(key, json::array());
  };
  match("phase ", list(old_book, "phases"), list(new_book, "phases"), edits,
        [&](const std::string& where, const json& old_phase, const json& new_phase) {
          compare(where, kPhaseKeys, old_phase, new_phase, edits);
          match(where + "criterion ", list(old_phase, "criteria"), list(new_phase, "criteria"),
                edits, [&](const std::string& at, const json& was, const json& is) {
                  compare(at, kCriterionKeys, was, is, edits);
                });
        });
  return edits;
}

std::vector<ThresholdEdit> line_edits(const std::vector<std::string>& lines, size_t limit) {
  std::vector<ThresholdEdit> edits;
  size_t next = 0;  // the first removed line that no added line follows yet
  for (const std::string& line : lines) {
    if (line.starts_with("-")) {
      edits.push_back({"line", line.substr(1), ""});
    } else {
      while (next < edits.size() && !edits[next].after.empty()) ++next;
      if (next < edits.size())
        edits[next].after = line.substr(1);
      else
        edits.push_back({"line", "", line.substr(1)});
      next = std::min(next + 1, edits.size());
    }
  }
  if (edits.size() <= limit) return edits;
  const size_t more = edits.size() - limit;
  edits.resize(limit);
  edits.push_back({"and " + std::to_string(more) + " more lines", "", ""});
  return edits;
}

}  // namespace harness

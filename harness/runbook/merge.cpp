#include "harness/runbook/merge.h"

#include <algorithm>

namespace harness {
namespace {

using nlohmann::json;

json merge_by_id(const json& base, const json& child) {
  json merged = base;
  for (const json& item : child) {
    const auto same = std::find_if(merged.begin(), merged.end(), [&](const json& known) {
      return known.at("id") == item.at("id");
    });
    if (same == merged.end()) {
      merged.push_back(item);
    } else {
      *same = merge_runbooks(*same, item);
    }
  }
  return merged;
}

}  // namespace

json merge_runbooks(const json& base, const json& child) {
  json merged = base;
  for (const auto& [key, value] : child.items()) {
    const bool known = merged.contains(key);
    if (known && (key == "phases" || key == "criteria" || key == "questions") && value.is_array()) {
      merged[key] = merge_by_id(merged[key], value);
    } else if (known && value.is_object() && merged[key].is_object()) {
      merged[key] = merge_runbooks(merged[key], value);
    } else {
      merged[key] = value;
    }
  }
  return merged;
}

}  // namespace harness

#include "nsa/program/strict_json.h"

#include <algorithm>

#include "base/json/depth.h"
#include "base/json/strict_parse.h"
#include "base/text/nearest.h"
#include "base/text/position.h"

namespace nsa {

nlohmann::json parse_strict_json(std::string_view text, const std::string& where) {
  try {
    return base::parse_strict(text, static_cast<int>(base::kMaxDepth));
  } catch (const base::StrictJsonError& error) {
    throw InputError(where + ": " + base::text_of(error));
  }
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
    const std::string nearest = base::nearest_name(key, known_);
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
  const auto [line, column] = base::position_of(text_, offset);
  return ":" + std::to_string(line) + ":" + std::to_string(column);
}

}  // namespace nsa

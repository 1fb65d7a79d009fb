#include "harness/schema/json_schema.h"

#include <limits>

namespace harness::detail {

using nlohmann::json;

constexpr const char* kDialect = "https://json-schema.org/draft/2020-12/schema";

void ObjectSchema::add(const FieldDoc& doc, json&& schema) {
  const std::string name(doc.name);
  schema["description"] = std::string(doc.doc);
  if (!doc.unit.empty()) schema["unit"] = std::string(doc.unit);
  if (!doc.required) schema["default"] = defaults_.at(name);
  if (doc.required && (!partial_ || identifies(doc.name))) required_.push_back(name);
  properties_[name] = std::move(schema);
}

json ObjectSchema::take() {
  return {{"type", "object"},
          {"additionalProperties", false},
          {"properties", std::move(properties_)},
          {"required", std::move(required_)}};
}

json named_type(const char* type) { return {{"type", type}}; }

json integer_type() {
  using Limits = std::numeric_limits<int64_t>;
  return {{"type", "integer"}, {"minimum", Limits::min()}, {"maximum", Limits::max()}};
}

json enum_type(const std::vector<std::string>& names) { return {{"enum", names}}; }

json or_null(json&& schema) {
  return {{"anyOf", json::array({std::move(schema), named_type("null")})}};
}

json list_of(json&& schema) { return {{"type", "array"}, {"items", std::move(schema)}}; }

json map_of(json&& schema) {
  return {{"type", "object"}, {"additionalProperties", std::move(schema)}};
}

json document_schema(const std::string& title, json object) {
  object["$schema"] = kDialect;
  object["title"] = title;
  return object;
}

json extendable_schema(const std::string& title, json&& partial, json&& full) {
  const json extending = {{"type", "object"},
                          {"required", json::array({"extends"})},
                          {"properties", {{"extends", {{"not", {{"const", ""}}}}}}}};
  return {{"$schema", kDialect},
          {"title", title},
          {"if", extending},
          {"then", std::move(partial)},
          {"else", std::move(full)}};
}

}  // namespace harness::detail

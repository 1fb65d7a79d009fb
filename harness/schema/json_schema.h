#pragma once
#include <limits>
#include <string>

#include "harness/schema/write.h"

/// JSON Schema (draft 2020-12) of a described struct: what `Reader` accepts, for editors and other
/// tools.
namespace harness {

namespace detail {

template <class T>
nlohmann::json type_schema(bool partial);

template <class T>
struct SchemaFields {
  bool partial;
  nlohmann::json properties = nlohmann::json::object();
  nlohmann::json required = nlohmann::json::array();
  nlohmann::json defaults = to_json(T{});

  template <class M>
  void operator()(const FieldDoc& doc, M T::*) {
    const std::string name(doc.name);
    nlohmann::json schema = type_schema<M>(partial);
    schema["description"] = std::string(doc.doc);
    if (!doc.unit.empty()) schema["unit"] = std::string(doc.unit);
    if (!doc.required) schema["default"] = defaults[name];
    if (doc.required && (!partial || identifies(doc.name))) required.push_back(name);
    properties[name] = std::move(schema);
  }
};

template <class T>
nlohmann::json object_schema(bool partial) {
  SchemaFields<T> fields{partial};
  T::describe(fields);
  return {{"type", "object"},
          {"additionalProperties", false},
          {"properties", fields.properties},
          {"required", fields.required}};
}

template <class T>
nlohmann::json type_schema(bool partial) {
  if constexpr (DescribedType<T>) {
    return object_schema<T>(partial);
  } else if constexpr (EnumType<T>) {
    return {{"enum", enum_names<T>()}};
  } else if constexpr (OptionalType<T>) {
    return {{"anyOf", {type_schema<typename T::value_type>(partial), {{"type", "null"}}}}};
  } else if constexpr (VectorType<T>) {
    return {{"type", "array"}, {"items", type_schema<typename T::value_type>(partial)}};
  } else if constexpr (MapType<T>) {
    return {{"type", "object"},
            {"additionalProperties", type_schema<typename T::mapped_type>(partial)}};
  } else if constexpr (std::is_same_v<T, bool>) {
    return {{"type", "boolean"}};
  } else if constexpr (std::is_same_v<T, int64_t>) {
    using Limits = std::numeric_limits<int64_t>;
    return {{"type", "integer"}, {"minimum", Limits::min()}, {"maximum", Limits::max()}};
  } else if constexpr (std::is_same_v<T, double>) {
    return {{"type", "number"}};
  } else if constexpr (std::is_same_v<T, std::string>) {
    return {{"type", "string"}};
  } else {
    static_assert(std::is_same_v<T, nlohmann::json>, "see field.h for the types a struct may hold");
    return nlohmann::json::object();
  }
}

}  // namespace detail

/// The schema of a whole document.
template <class T>
nlohmann::json json_schema(const std::string& title) {
  nlohmann::json schema = detail::object_schema<T>(/*partial=*/false);
  schema["$schema"] = "https://json-schema.org/draft/2020-12/schema";
  schema["title"] = title;
  return schema;
}

/// The schema of a document that may `extends` another: then only the keys that identify are
/// required, as in ReadMode::kPartial.
template <class T>
nlohmann::json extendable_json_schema(const std::string& title) {
  const nlohmann::json extending = {{"type", "object"},
                                    {"required", {"extends"}},
                                    {"properties", {{"extends", {{"not", {{"const", ""}}}}}}}};
  return {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
          {"title", title},
          {"if", extending},
          {"then", detail::object_schema<T>(/*partial=*/true)},
          {"else", detail::object_schema<T>(/*partial=*/false)}};
}

}  // namespace harness

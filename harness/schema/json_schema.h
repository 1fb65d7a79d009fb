#pragma once
#include <string>
#include <vector>

#include "harness/schema/write.h"

/// JSON Schema (draft 2020-12) of a described struct: what `Reader` accepts, for editors and other
/// tools.
namespace harness {

namespace detail {

/// The schema of an object, field by field; the part that does not depend on the fields' types.
class ObjectSchema {
 public:
  ObjectSchema(nlohmann::json defaults, bool partial)
      : defaults_(std::move(defaults)), partial_(partial) {}
  void add(const FieldDoc& doc, nlohmann::json&& schema);
  nlohmann::json take();

 private:
  nlohmann::json properties_ = nlohmann::json::object(), required_ = nlohmann::json::array();
  nlohmann::json defaults_;
  bool partial_;
};

nlohmann::json named_type(const char* type);  ///< {"type": TYPE}
nlohmann::json integer_type();
nlohmann::json enum_type(const std::vector<std::string>& names);
nlohmann::json or_null(nlohmann::json&& schema);
nlohmann::json list_of(nlohmann::json&& schema);
nlohmann::json map_of(nlohmann::json&& schema);

template <class T>
nlohmann::json type_schema(bool partial);

template <class T>
struct SchemaFields {
  ObjectSchema& object;
  bool partial;
  template <class M>
  void operator()(const FieldDoc& doc, M T::*) {
    object.add(doc, type_schema<M>(partial));
  }
};

template <class T>
nlohmann::json object_schema(bool partial) {
  ObjectSchema object(defaults_json<T>(), partial);
  SchemaFields<T> fields{object, partial};
  T::describe(fields);
  return object.take();
}

template <class T>
nlohmann::json type_schema(bool partial) {
  if constexpr (DescribedType<T>) {
    return object_schema<T>(partial);
  } else if constexpr (EnumType<T>) {
    return enum_type(enum_names<T>());
  } else if constexpr (OptionalType<T>) {
    return or_null(type_schema<typename T::value_type>(partial));
  } else if constexpr (VectorType<T>) {
    return list_of(type_schema<typename T::value_type>(partial));
  } else if constexpr (MapType<T>) {
    return map_of(type_schema<typename T::mapped_type>(partial));
  } else if constexpr (std::is_same_v<T, bool>) {
    return named_type("boolean");
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return integer_type();
  } else if constexpr (std::is_same_v<T, double>) {
    return named_type("number");
  } else if constexpr (std::is_same_v<T, std::string>) {
    return named_type("string");
  } else {
    static_assert(std::is_same_v<T, nlohmann::json>, "see field.h for the types a struct may hold");
    return nlohmann::json::object();
  }
}

nlohmann::json document_schema(const std::string& title, nlohmann::json object);
nlohmann::json extendable_schema(const std::string& title, nlohmann::json&& partial,
                                 nlohmann::json&& full);

}  // namespace detail

/// The schema of a whole document.
template <class T>
nlohmann::json json_schema(const std::string& title) {
  return detail::document_schema(title, detail::object_schema<T>(/*partial=*/false));
}

/// The schema of a document that may `extends` another: then only the keys that identify are
/// required, as in ReadMode::kPartial.
template <class T>
nlohmann::json extendable_json_schema(const std::string& title) {
  return detail::extendable_schema(title, detail::object_schema<T>(/*partial=*/true),
                                   detail::object_schema<T>(/*partial=*/false));
}

}  // namespace harness

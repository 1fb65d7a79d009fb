#pragma once
#include <string>

#include "harness/schema/traits.h"

/// Writer of described structs. Every field is written, so that a file needs no knowledge of
/// defaults, but for those that are `brief`.
namespace harness {

template <class T>
nlohmann::json to_json(const T& value);

namespace detail {
void put(nlohmann::json& object, const FieldDoc& doc, nlohmann::json&& value);

template <class T>
struct FieldWriter {
  const T& value;
  bool brief = true;  ///< fields that are may be left out
  nlohmann::json object = nlohmann::json::object();
  template <class M>
  void operator()(const FieldDoc& doc, M T::* member) {
    nlohmann::json written = to_json(value.*member);
    if (brief && doc.brief && written == to_json(T{}.*member)) return;
    put(object, doc, std::move(written));
  }
};
}  // namespace detail

/// `value` as JSON: an empty optional is null, an enum its name.
template <class T>
nlohmann::json to_json(const T& value) {
  if constexpr (DescribedType<T>) {
    detail::FieldWriter<T> writer{value};
    T::describe(writer);
    return std::move(writer.object);
  } else if constexpr (EnumType<T>) {
    return std::string(enum_name(value));
  } else if constexpr (OptionalType<T>) {
    return value ? to_json(*value) : nlohmann::json(nullptr);
  } else if constexpr (VectorType<T>) {
    auto list = nlohmann::json::array();
    for (const auto& item : value) list.push_back(to_json(item));
    return list;
  } else if constexpr (MapType<T>) {
    auto object = nlohmann::json::object();
    for (const auto& [key, item] : value) object[key] = to_json(item);
    return object;
  } else {
    return value;
  }
}

/// The default of every field of a struct, by its key.
template <class T>
nlohmann::json defaults_json() {
  const T value{};
  detail::FieldWriter<T> writer{value, /*brief=*/false};
  T::describe(writer);
  return std::move(writer.object);
}

/// The one text of a value: keys sorted, shortest round-trip numbers whatever the locale, no
/// blanks. Bytes that are not UTF-8 become U+FFFD. Throws Error naming the place of a non-finite
/// number.
std::string canonical_dump(const nlohmann::json& value);

/// The same, indented by two blanks, with a newline at the end: the form of files people read.
std::string pretty_dump(const nlohmann::json& value);

/// The same for large files: a line a key, in its lists a line an element.
std::string lines_dump(const nlohmann::json& value);

}  // namespace harness

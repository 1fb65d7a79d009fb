#pragma once
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "base/json/field_doc.h"

/// Described structs (base/json/field_doc.h) to and from JSON, with std and nlohmann only, for
/// programs that link LibTorch. Files that people write are read elsewhere, with line, column and
/// nearest names in the errors.
namespace base::protocol {

/// Every error of the protocol: text names the field, its value and the remedy.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <class T>
nlohmann::json to_object(const T& value);
template <class T>
T from_object(const nlohmann::json& object);

namespace detail {

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};
template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

/// What describe() is called with when only the existence of T::describe matters.
struct NullVisitor {
  template <class M>
  void operator()(const FieldDoc&, M&&) {}
};
template <class T>
concept Described = requires(NullVisitor& v) { T::describe(v); };

template <class T>
nlohmann::json write_value(const T& value) {
  if constexpr (IsOptional<T>::value) {
    return value ? write_value(*value) : nlohmann::json();
  } else if constexpr (Described<T>) {
    return to_object(value);
  } else if constexpr (IsVector<T>::value) {
    auto array = nlohmann::json::array();
    for (const auto& item : value) array.push_back(write_value(item));
    return array;
  } else {
    return value;
  }
}

inline std::string shown(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).substr(0, 80);
}

template <class T>
T read_scalar(const nlohmann::json& value, std::string_view name) {
  const auto refuse = [&](const char* want) {
    throw Error(std::string(name) + " must be " + want + ", got " + shown(value));
  };
  if constexpr (std::is_same_v<T, bool>) {
    if (!value.is_boolean()) refuse("true or false");
  } else if constexpr (std::is_integral_v<T>) {
    if (!value.is_number_integer()) refuse("an integer");
  } else if constexpr (std::is_floating_point_v<T>) {
    if (!value.is_number()) refuse("a number");
  } else {
    if (!value.is_string()) refuse("a string");
  }
  return value.get<T>();
}

template <class T>
T read_value(const nlohmann::json& value, std::string_view name) {
  if constexpr (std::is_same_v<T, nlohmann::json>) {
    return value;
  } else if constexpr (IsOptional<T>::value) {
    if (value.is_null()) return {};
    return read_value<typename T::value_type>(value, name);
  } else if constexpr (Described<T>) {
    return from_object<T>(value);
  } else if constexpr (IsVector<T>::value) {
    if (!value.is_array()) throw Error(std::string(name) + " must be a list, got " + shown(value));
    T items;
    for (const auto& item : value) items.push_back(read_value<typename T::value_type>(item, name));
    return items;
  } else if constexpr (std::is_same_v<T, std::map<std::string, std::string>>) {
    if (!value.is_object())
      throw Error(std::string(name) + " must be an object, got " + shown(value));
    T items;
    for (const auto& [key, item] : value.items()) items[key] = read_scalar<std::string>(item, key);
    return items;
  } else {
    return read_scalar<T>(value, name);
  }
}

template <class T>
struct Writer {
  const T& from;
  nlohmann::json object = nlohmann::json::object();
  template <class M>
  void operator()(const FieldDoc& field, M T::* member) {
    auto value = write_value(from.*member);
    const bool bare = value.is_null() || value == "" || (value.is_structured() && value.empty());
    if (field.required || !bare) object[std::string(field.name)] = std::move(value);
  }
};

template <class T>
struct Reader {
  const nlohmann::json& object;
  T into{};
  size_t known = 0;
  template <class M>
  void operator()(const FieldDoc& field, M T::* member) {
    const auto found = object.find(std::string(field.name));
    if (found != object.end()) {
      into.*member = read_value<M>(*found, field.name);
      known++;
    } else if (field.required) {
      throw Error(std::string(field.name) + " is missing");
    }
  }
};

struct NameCollector {
  std::vector<std::string_view> names;
  template <class M>
  void operator()(const FieldDoc& field, M&&) {
    names.push_back(field.name);
  }
};

template <class T>
std::string first_unknown_key(const nlohmann::json& object) {
  NameCollector collector;
  T::describe(collector);
  for (const auto& [key, value] : object.items()) {
    bool known = false;
    for (const auto name : collector.names) known = known || name == key;
    if (!known) return key;
  }
  return "";
}

}  // namespace detail

/// The object of a described struct. Members that are not required are left out when null or empty.
template <class T>
nlohmann::json to_object(const T& value) {
  detail::Writer<T> writer{value};
  T::describe(writer);
  return std::move(writer.object);
}

/// The struct of an object. Throws Error for a missing required key, a wrong type and an unknown
/// key.
template <class T>
T from_object(const nlohmann::json& object) {
  if (!object.is_object()) throw Error("an object is wanted, got " + detail::shown(object));
  detail::Reader<T> reader{object};
  T::describe(reader);
  if (reader.known != object.size())
    throw Error("unknown field '" + detail::first_unknown_key<T>(object) + "'");
  return std::move(reader.into);
}

/// One line of JSON. Bytes that are not UTF-8 become U+FFFD: a hostile string is data, never a
/// reason to fail.
inline std::string print_line(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Replaces NaN and infinities below `value` by null and returns "PATH is nan"-like text, empty
/// when there was none.
inline std::string refuse_non_finite(nlohmann::json& value, const std::string& path = "") {
  std::string reason;
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::isfinite(number)) return "";
    value = nullptr;
    return path + " is " + (std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf");
  }
  if (!value.is_structured()) return "";
  for (auto& [key, item] : value.items()) {
    const auto found = refuse_non_finite(item, path.empty() ? key : path + "." + key);
    if (!found.empty()) reason += (reason.empty() ? "" : ", ") + found;
  }
  return reason;
}

}  // namespace base::protocol

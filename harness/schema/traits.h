#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "harness/schema/field.h"

/// Which C++ types a described struct may hold; see field.h.
namespace harness {

namespace detail {
struct AnyVisitor {
  template <class M, class C>
  void operator()(const FieldDoc&, M C::*) {}
};
template <class T, template <class...> class Template>
inline constexpr bool is_instance = false;
template <class... Args, template <class...> class Template>
inline constexpr bool is_instance<Template<Args...>, Template> = true;
}  // namespace detail

template <class T>
concept DescribedType = requires(detail::AnyVisitor& v) { T::describe(v); };

template <class T>
concept EnumType = std::is_enum_v<T>;

template <class T>
concept OptionalType = detail::is_instance<T, std::optional>;

template <class T>
concept VectorType = detail::is_instance<T, std::vector>;

/// std::map<std::string, X>
template <class T>
concept MapType =
    detail::is_instance<T, std::map> && std::is_same_v<typename T::key_type, std::string>;

/// The JSON names of an enum, in order.
template <EnumType E>
std::vector<std::string> enum_names() {
  std::vector<std::string> names;
  for (const auto& [value, name] : EnumNames<E>::names) names.emplace_back(name);
  return names;
}

/// Whether a partial document (one that `extends` another) needs this key all the same: the keys by
/// which it and its parts are known.
constexpr bool identifies(std::string_view key) {
  return key == "id" || key == "name" || key == "schema";
}

}  // namespace harness

#pragma once
#include <array>
#include <string_view>
#include <utility>

#include "base/json/field_doc.h"

/// Vocabulary of struct descriptions. A described struct has
///
///   template <class Visitor> static void describe(Visitor& v) {
///     v({.name = "id", .doc = "unique name of the phase", .required = true}, &Phase::id);
///     ...
///   }
///
/// and one description drives the strict reader, the writer, the JSON Schema and the reference
/// page, so that they cannot drift. A member that is not `required` keeps its C++ default when the
/// key is absent; the writer leaves it out then if it is `brief`, else always writes it. Member
/// types: bool, int64_t, double, std::string, enums with EnumNames, nlohmann::json (free form),
/// described structs, and std::optional<T>, std::vector<T>, std::map<std::string, T> of these.
namespace harness {

using base::FieldDoc;

/// Specialise with `static constexpr auto names = std::to_array<std::pair<E,
/// std::string_view>>({...});`
template <class E>
struct EnumNames;

/// The text of an enum value, as written in JSON and in reports.
template <class E>
constexpr std::string_view enum_name(E value) {
  for (const auto& [e, name] : EnumNames<E>::names)
    if (e == value) return name;
  return "?";
}

}  // namespace harness

#pragma once
#include <string>

#include "harness/schema/write.h"

/// Reference page of a described struct: one Markdown table for it and for each struct it holds.
namespace harness {

namespace detail {

/// Text as it may stand in a cell of a Markdown table.
std::string cell(std::string_view text);

/// The row of one field; `defaults`: the struct it belongs to, as it is by default.
std::string row(const FieldDoc& doc, const std::string& type, const nlohmann::json& defaults);

template <class T>
struct ReferenceRows;

template <class T>
std::string type_name() {
  if constexpr (DescribedType<T> || MapType<T>) return "object";
  if constexpr (EnumType<T>) return "one of";
  if constexpr (OptionalType<T>) return type_name<typename T::value_type>() + " or null";
  if constexpr (VectorType<T>) return "list of " + type_name<typename T::value_type>();
  if constexpr (std::is_same_v<T, bool>) return "bool";
  if constexpr (std::is_same_v<T, int64_t>) return "integer";
  if constexpr (std::is_same_v<T, double>) return "number";
  if constexpr (std::is_same_v<T, std::string>) return "string";
  return "any";
}

template <class T>
std::string full_type_name() {
  std::string name = type_name<T>();
  if constexpr (EnumType<T>)
    for (const std::string& value : enum_names<T>()) name += " " + value;
  return name;
}

/// Appends the table of T, headed by `path`, and those of the structs inside to `page`.
template <class T>
void add_tables(const std::string& path, std::string& page) {
  ReferenceRows<T> rows{path};
  T::describe(rows);
  page += "\n## " + path +
          "\n\n| key | type | default | unit | meaning |\n|---|---|---|---|---|\n" + rows.rows +
          rows.nested;
}

template <class T>
void add_nested(const std::string& path, std::string& page) {
  if constexpr (DescribedType<T>) add_tables<T>(path, page);
  if constexpr (OptionalType<T>) add_nested<typename T::value_type>(path, page);
  if constexpr (VectorType<T>) add_nested<typename T::value_type>(path + "[]", page);
  if constexpr (MapType<T>) add_nested<typename T::mapped_type>(path + ".NAME", page);
}

template <class T>
struct ReferenceRows {
  std::string path, rows = {}, nested = {};
  nlohmann::json defaults = defaults_json<T>();

  template <class M>
  void operator()(const FieldDoc& doc, M T::*) {
    rows += row(doc, full_type_name<M>(), defaults);
    add_nested<M>(path + "." + std::string(doc.name), nested);
  }
};

}  // namespace detail

/// Markdown; `name` heads the first table and the paths below it.
template <class T>
std::string reference_page(const std::string& name) {
  std::string page = "# " + name + "\n";
  detail::add_tables<T>(name, page);
  return page;
}

}  // namespace harness

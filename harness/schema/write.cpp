#include "harness/schema/write.h"

#include <cmath>

#include "harness/schema/error.h"

namespace harness {
namespace {

using nlohmann::json;

void require_finite(const json& value, const json::json_pointer& place) {
  if (value.is_number_float() && !std::isfinite(value.get<double>()))
    throw Error("number at '" + place.to_string() +
                "' is not finite, which JSON cannot hold; write null and a reason");
  if (value.is_object())
    for (const auto& [key, item] : value.items()) require_finite(item, place / key);
  if (value.is_array())
    for (size_t i = 0; i < value.size(); ++i) require_finite(value[i], place / i);
}

std::string dump(const json& value, int indent) {
  require_finite(value, json::json_pointer());
  return value.dump(indent, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
}

}  // namespace

void detail::put(json& object, const FieldDoc& doc, json&& value) {
  object[std::string(doc.name)] = std::move(value);
}

std::string canonical_dump(const json& value) { return dump(value, -1); }

std::string lines_dump(const json& value) {
  if (!value.is_object()) return canonical_dump(value) + "\n";
  require_finite(value, json::json_pointer());  // names the place in the whole
  std::string out;
  for (const auto& [key, item] : value.items()) {
    out += (out.empty() ? "{\n" : ",\n") + canonical_dump(key) + ":";
    if (!item.is_array() || item.empty()) {
      out += canonical_dump(item);
      continue;
    }
    for (size_t i = 0; i < item.size(); ++i)
      out += (i == 0 ? "[\n" : ",\n") + canonical_dump(item[i]);
    out += "]";
  }
  return (out.empty() ? "{" : out) + "}\n";
}

std::string pretty_dump(const json& value) { return dump(value, 2) + "\n"; }

}  // namespace harness

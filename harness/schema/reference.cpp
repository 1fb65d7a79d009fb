#include "harness/schema/reference.h"

namespace harness::detail {

std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

std::string row(const FieldDoc& doc, const std::string& type, const nlohmann::json& defaults) {
  const std::string name(doc.name);
  const std::string initial =
      doc.required ? "required" : "`" + cell(canonical_dump(defaults.at(name))) + "`";
  return "| `" + name + "` | " + type + " | " + initial + " | " + cell(doc.unit) + " | " +
         cell(doc.doc) + " |\n";
}

}  // namespace harness::detail

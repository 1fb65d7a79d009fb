#include "reports/profile.h"

#include <string_view>

namespace reports {
namespace {

using nlohmann::json;

std::string text(const json& table, const char* key) {
  const auto found = table.find(key);
  return found != table.end() && found->is_string() ? found->get<std::string>() : "";
}

/// "hotspots.ranges.g01" -> true for "ranges": ids are PHASE.NAME, with the process behind when
/// several told one.
bool has_part(const std::string& id, std::string_view part) {
  const size_t at = id.find("." + std::string(part));
  const size_t end = at == std::string::npos ? at : at + 1 + part.size();
  return end != std::string::npos && (end == id.size() || id[end] == '.');
}

}  // namespace

std::vector<RangeTable> range_tables(const Model& model) {
  std::vector<RangeTable> found;
  if (!model.results.tables.is_array()) return found;
  for (const json& table : model.results.tables) {
    if (!table.is_object() || !has_part(text(table, "id"), "ranges")) continue;
    if (!table.contains("columns") || !table["columns"].is_array() || !table.contains("rows") ||
        !table["rows"].is_array())
      continue;
    RangeTable ranges{.table = table,
                      .id = text(table, "id"),
                      .title = text(table, "title"),
                      .name = SIZE_MAX,
                      .time = SIZE_MAX,
                      .unit = ""};
    for (size_t c = 0; c < table["columns"].size(); ++c) {
      const std::string column =
          table["columns"][c].is_string() ? table["columns"][c].get<std::string>() : "";
      if (column == "range") ranges.name = c;
      for (const char* unit : {"ms", "us"})
        if (ranges.unit.empty() && column.ends_with(unit)) {
          ranges.time = c;
          ranges.unit = unit;
        }
    }
    if (ranges.name != SIZE_MAX && ranges.time != SIZE_MAX) found.push_back(std::move(ranges));
  }
  return found;
}

}  // namespace reports

#include <algorithm>
#include <cmath>

#include "harness/results/number.h"
#include "reports/escape.h"
#include "reports/markdown/table.h"
#include "reports/plots/data.h"
#include "reports/plots/plot.h"

/// Heat maps of percentages, from tables whose id ends in ".heat_map": the first column names a
/// row, every other one has a number of [0, 100]. The head of the first column is "ROWS by
/// COLUMNS", the titles of both axes with their units.
namespace reports {
namespace {

using nlohmann::json;

constexpr size_t kMostCells = 400;
constexpr double kHalf = 0.49;  ///< of a cell's side, which is 1

constexpr std::string_view kBy = " by ";

struct HeatMap {
  std::string row_title, column_title;
  std::vector<std::string> rows, columns;
  std::vector<std::vector<double>> cells;
};

std::string heat_text(const json& cell) {
  return cell.is_string() ? cell.get<std::string>() : cell.dump();
}

/// Empty where the table has another form.
HeatMap heat_map_of(const json& table) {
  HeatMap map;
  if (!table.contains("rows") || !table["rows"].is_array() || !table.contains("columns") ||
      !table["columns"].is_array() || table["columns"].size() < 2)
    return {};
  for (const json& column : table["columns"]) map.columns.push_back(heat_text(column));
  const std::string titles = map.columns.front();
  const size_t by = titles.find(kBy);
  if (by == std::string::npos) return {};
  map.row_title = titles.substr(0, by);
  map.column_title = titles.substr(by + kBy.size());
  map.columns.erase(map.columns.begin());
  for (const json& cells : table["rows"]) {
    if (!cells.is_array() || cells.size() != map.columns.size() + 1) return {};
    map.rows.push_back(heat_text(cells.front()));
    map.cells.emplace_back();
    for (size_t i = 1; i < cells.size(); ++i) {
      if (!cells[i].is_number()) return {};
      map.cells.back().push_back(cells[i].get<double>());
    }
  }
  if (map.rows.size() * map.columns.size() > kMostCells) return {};
  return map;
}

/// From white at 0 % to blue at 100 %, as a number that gnuplot takes for a colour.
std::string cell_colour(double pct) {
  const double share = std::clamp(pct / 100, 0.0, 1.0);
  const auto part = [&](int full) {
    return static_cast<int>(std::lround(255 - share * (255 - full)));
  };
  return std::to_string((part(0x6f) << 16) | (part(0xa8) << 8) | part(0xdc));
}

Plot heat_map_plot(const std::string& id, const std::string& title, const HeatMap& map) {
  Plot plot;
  plot.name = file_name(id);
  plot.phase = id.substr(0, id.find('.'));
  plot.title = escape(title) + " " + code(id);
  double least = 100;
  std::vector<std::string> head = {escape(map.row_title + std::string(kBy) + map.column_title)};
  for (const std::string& column : map.columns) head.push_back(escape(column) + ">");
  Table table(head);
  for (size_t r = 0; r < map.rows.size(); ++r) {
    std::vector<std::string> shown = {escape(map.rows[r])};
    const double y = static_cast<double>(map.rows.size() - r);
    for (size_t c = 0; c < map.columns.size(); ++c) {
      const double value = map.cells[r][c];
      least = std::min(least, value);
      shown.push_back(harness::format_number(value, 3));
      plot.data +=
          row({number(static_cast<double>(c + 1)), number(y), harness::format_number(value, 3),
               cell_colour(value), label(map.columns[c]), label(map.rows[r])});
    }
    table.add(shown);
  }
  plot.alt = "Heat map of " + std::to_string(map.rows.size()) + " by " +
             std::to_string(map.columns.size()) + " cells, the least " +
             harness::format_number(least, 3) + " %";
  plot.height = 140 + 44 * static_cast<int>(map.rows.size());
  const std::string half = "(" + number(kHalf) + ")";
  plot.script = "set xrange [0.5:" + number(static_cast<double>(map.columns.size()) + 0.5) +
                "]\nset yrange [0.5:" + number(static_cast<double>(map.rows.size()) + 0.5) +
                "]\nset xlabel \"" + label(map.column_title) + "\"\nset ylabel \"" +
                label(map.row_title) +
                "\"\nset style fill solid 1 noborder\nplot DATA using 1:2:" + half + ":" + half +
                ":4:xticlabels(5):yticlabels(6) with boxxyerror lc rgb variable notitle, "
                "DATA using 1:2:3 with labels textcolor rgb \"#1f1f1f\" notitle\n";
  plot.table = table.markdown();
  return plot;
}

}  // namespace

std::vector<Plot> heat_map_plots(const Model& model) {
  std::vector<Plot> made;
  if (!model.results.tables.is_array()) return made;
  for (const json& table : model.results.tables) {
    if (!table.is_object() || !table.contains("id") || !table["id"].is_string()) continue;
    const std::string id = table["id"].get<std::string>();
    if (!id.ends_with(".heat_map")) continue;
    if (const HeatMap map = heat_map_of(table); !map.rows.empty())
      made.push_back(heat_map_plot(id, table.value("title", ""), map));
  }
  return made;
}

}  // namespace reports

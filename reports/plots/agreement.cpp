#include <algorithm>
#include <cmath>

#include "harness/results/number.h"
#include "reports/escape.h"
#include "reports/markdown/table.h"
#include "reports/plots/data.h"
#include "reports/plots/plot.h"

/// Comparisons with the oracle: how much of its allowance each used, from tables named
/// PHASE.agreement whose last column is error over allowance.
namespace reports {
namespace {

using nlohmann::json;
constexpr size_t kRows = 40;
constexpr double kLeast = 1e-3;  ///< smaller shares are drawn here

/// Name and share of a row; a share that is no number, or negative, is not drawn.
struct Used {
  std::string name;
  double share = 0;
};

std::vector<Used> used_of(const json& table) {
  std::vector<Used> all;
  if (!table.contains("rows") || !table["rows"].is_array()) return all;
  for (const json& cells : table["rows"]) {
    if (!cells.is_array() || cells.empty() || !cells.front().is_string()) continue;
    const json& share = cells.back();
    if (share.is_number() && share.get<double>() >= 0 && std::isfinite(share.get<double>()))
      all.push_back({cells.front().get<std::string>(), share.get<double>()});
  }
  std::ranges::stable_sort(all, std::ranges::greater{}, &Used::share);
  return all;
}

Plot plot_of(const std::string& id, const std::vector<Used>& all) {
  const size_t rows = std::min(all.size(), kRows);
  const double most = all.front().share;
  Plot plot;
  plot.name = "agreement-" + file_name(id);
  plot.phase = id.substr(0, id.find('.'));
  plot.title = "Share of the allowance that comparisons with the oracle used " + code(id);
  plot.alt = "Points: the " + std::to_string(rows) + " of " + std::to_string(all.size()) +
             " comparisons that used most of their allowance, the largest share " +
             harness::format_number(most, 3) + "; the line at 1 is the allowance";
  plot.height = 130 + 22 * static_cast<int>(rows);
  Table table({"comparison", "error over allowance>"});
  for (size_t i = 0; i < rows; ++i) {
    plot.data += row({number(std::max(all[i].share, kLeast)), number(static_cast<double>(rows - i)),
                      label(all[i].name)});
    table.add({code(all[i].name), harness::format_number(all[i].share, 3)});
  }
  plot.script = "set logscale x\nset xrange [" + number(kLeast / 1.2) + ":" +
                number(std::max(2.0, most * 1.3)) +
                "]\nset yrange [0.3:" + number(static_cast<double>(rows) + 0.7) +
                "]\nset xlabel \"error over allowance\"\n"
                "set arrow from 1, graph 0 to 1, graph 1 nohead lc rgb \"#c8641b\" dt 2\n"
                "plot DATA using 1:2:yticlabels(3) with points lc rgb \"#2f7ed8\" pt 7 ps 0.9 "
                "notitle\n";
  plot.table = table.markdown();
  return plot;
}

}  // namespace

std::vector<Plot> agreement_plots(const Model& model) {
  std::vector<Plot> made;
  if (!model.results.tables.is_array()) return made;
  for (const json& table : model.results.tables) {
    if (!table.is_object() || !table.contains("id") || !table["id"].is_string()) continue;
    const std::string id = table["id"].get<std::string>();
    if (!id.ends_with(".agreement")) continue;
    if (const auto all = used_of(table); !all.empty()) made.push_back(plot_of(id, all));
  }
  return made;
}

}  // namespace reports

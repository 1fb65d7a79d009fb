#include <algorithm>

#include "harness/results/number.h"
#include "reports/escape.h"
#include "reports/markdown/table.h"
#include "reports/plots/data.h"
#include "reports/plots/plot.h"
#include "reports/profile.h"

/// Device time per range, from tables of profiling steps.
namespace reports {
namespace {

using nlohmann::json;
constexpr size_t kBars = 30;

struct Bar {
  std::string name;
  double value = 0;
};

std::vector<Bar> bars_of(const RangeTable& ranges) {
  std::vector<Bar> bars;
  for (const json& row : ranges.table["rows"]) {
    if (!row.is_array() || row.size() <= std::max(ranges.name, ranges.time)) continue;
    const json &name = row[ranges.name], &time = row[ranges.time];
    if (name.is_string() && time.is_number() && time.get<double>() >= 0)
      bars.push_back({name.get<std::string>(), time.get<double>()});
  }
  std::ranges::stable_sort(bars, std::ranges::greater{}, &Bar::value);
  if (bars.size() > kBars) bars.resize(kBars);
  return bars;
}

Plot plot_of(const RangeTable& ranges) {
  const std::vector<Bar> bars = bars_of(ranges);
  if (bars.empty()) return {};
  Plot plot;
  plot.name = "ranges-" + file_name(ranges.id);
  plot.phase = ranges.id.substr(0, ranges.id.find('.'));
  plot.title = escape(ranges.title) + " " + code(ranges.id);
  plot.alt = "Bars: device time of the " + std::to_string(bars.size()) + " largest ranges in " +
             ranges.unit;
  plot.height = 120 + 26 * static_cast<int>(bars.size());
  Table table({"range", ranges.unit + ">"});
  for (size_t i = 0; i < bars.size(); ++i) {
    const double y = static_cast<double>(bars.size() - i);
    plot.data += row({number(bars[i].value / 2), number(y), number(bars[i].value / 2), "0.36",
                      label(bars[i].name)});
    table.add({code(bars[i].name), harness::format_number(bars[i].value)});
  }
  plot.script =
      "set yrange [0.3:" + number(static_cast<double>(bars.size()) + 0.7) +
      "]\nset xrange [0:" + number(std::max(bars.front().value * 1.05, 1e-9)) + "]\nset xlabel \"" +
      ranges.unit +
      "\"\nset style fill solid 0.8 noborder\n"
      "plot DATA using 1:2:3:4:yticlabels(5) with boxxyerror lc rgb \"#2f7ed8\" notitle\n";
  plot.table = table.markdown();
  return plot;
}

}  // namespace

std::vector<Plot> range_plots(const Model& model) {
  std::vector<Plot> made;
  for (const RangeTable& ranges : range_tables(model))
    if (Plot plot = plot_of(ranges); !plot.data.empty()) made.push_back(std::move(plot));
  return made;
}

}  // namespace reports

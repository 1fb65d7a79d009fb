#include <algorithm>
#include <cmath>
#include <optional>

#include "harness/results/number.h"
#include "reports/escape.h"
#include "reports/plots/data.h"
#include "reports/plots/plot.h"
#include "reports/table.h"

/// A/B comparisons: all in one forest, and the pairs of each.
namespace reports {
namespace {

using harness::Metric;
using nlohmann::json;

constexpr size_t kForestRows = 40;
constexpr size_t kPairedPlots = 12;

std::optional<double> positive(const json& from, const char* key) {
  const auto found = from.find(key);
  if (found == from.end() || !found->is_number() || !(found->get<double>() > 0))
    return std::nullopt;
  return found->get<double>();
}

bool is_drawable(const Metric& m) {
  return m.withheld.empty() && m.value && m.lo && m.hi && *m.value > 0 && *m.lo > 0 && *m.hi > 0 &&
         std::isfinite(*m.hi);
}

std::vector<const Metric*> drawable(const Model& model) {
  std::vector<const Metric*> all;
  for (const Metric* m : model.comparisons)
    if (is_drawable(*m)) all.push_back(m);
  return all;
}

double margin_of(const Metric& m) {
  return positive(m.details, "margin_in_force_pct").value_or(0) / 100;
}

/// A ratio reads best on a logarithmic axis, but over a narrow range that axis has no marks.
std::string ratio_axis(const char* axis, double lo, double hi) {
  return hi / lo > 8 ? "set logscale " + std::string(axis) + "\n" : "";
}

/// A band of no difference between two numbers of x or y.
std::string rectangle(const std::string& from, const std::string& to, const char* colour) {
  return "set object rectangle from " + from + " to " + to + " fillcolor rgb \"" + colour +
         "\" fillstyle solid 0.18 noborder behind\n";
}

Plot forest(const std::vector<const Metric*>& all) {
  const size_t rows = std::min(all.size(), kForestRows);
  Plot plot;
  plot.name = "forest";
  plot.title = "Speed-up of every comparison";
  plot.alt = "Forest plot: " + std::to_string(rows) +
             " comparisons, the speed-up of each with its 99 % interval; "
             "right of 1 the candidate is faster";
  plot.height = 130 + 30 * static_cast<int>(rows);
  Table table({"comparison", "speed-up>", "99 %", "verdict"});
  double least = 1, largest = 1;
  for (size_t i = 0; i < rows; ++i) {
    const Metric& m = *all[i];
    const double y = static_cast<double>(rows - i);
    plot.data += row({number(*m.value), number(y), number(*m.lo), number(*m.hi), label(m.name)});
    table.add({code(m.id), harness::format_number(*m.value), harness::format_interval(*m.lo, *m.hi),
               escape(m.verdict)});
    least = std::min(least, *m.lo);
    largest = std::max(largest, *m.hi);
  }
  plot.script = ratio_axis("x", least, largest) + "set xrange [" + number(least / 1.15) + ":" +
                number(largest * 1.15) +
                "]\nset yrange [0.3:" + number(static_cast<double>(rows) + 0.7) +
                "]\nset xlabel \"speed-up (baseline time / candidate time)\"\n"
                "set arrow from 1, graph 0 to 1, graph 1 nohead lc rgb \"#7d7d7d\" dt 2\n"
                "plot DATA using 1:2:3:4:yticlabels(5) with xerrorbars lc rgb \"#2f7ed8\" pt 7 ps "
                "0.9 lw 1.6 notitle\n";
  plot.table = table.markdown();
  return plot;
}

/// Largest and smallest of what the picture must show, as a range with some air.
struct Extent {
  double lo, hi;
  void take(double value) {
    lo = std::min(lo, value);
    hi = std::max(hi, value);
  }
};

Plot pairs(const Metric& m) {
  Plot plot;
  plot.name = "pairs-" + file_name(m.name);
  plot.title = "Pairs of " + code(m.id);
  Extent y{*m.lo, *m.hi};
  Table table({"process", "baseline>", "candidate>", "speed-up>"});
  const json none = json::array();
  const auto found = m.details.find("processes");
  const json& processes = found != m.details.end() && found->is_array() ? *found : none;
  size_t n = 0;
  for (const json& process : processes) {
    const auto speedup = process.is_object() ? positive(process, "speedup") : std::nullopt;
    if (!speedup) continue;
    const std::string name = process.value("process", json("")).is_string()
                                 ? process.value("process", json("")).get<std::string>()
                                 : "";
    plot.data += row({number(static_cast<double>(++n)), number(*speedup), label(name, 12)});
    y.take(*speedup);
    const auto cell = [&](const char* arm) {
      const auto time = positive(process, arm);
      return time ? harness::format_number(*time) : std::string("–");
    };
    table.add({code(name), cell("baseline"), cell("candidate"), harness::format_number(*speedup)});
  }
  if (n == 0) return {};
  const double margin = margin_of(m);
  const bool near_one = y.lo < 1.5 && y.hi > 0.67;  // else 1 is far away and would flatten the rest
  if (near_one) {
    y.take(1 / (1 + margin));
    y.take(1 + margin);
  }
  plot.alt = "Speed-up of each of " + std::to_string(n) + " pairs of processes; the band is the " +
             "99 % interval " + harness::format_interval(*m.lo, *m.hi) +
             ", the line the estimate " + harness::format_number(*m.value) +
             (near_one ? "; the grey band is the margin of no difference around 1" : "");
  const double air = std::max(1.002, std::sqrt(std::sqrt(y.hi / y.lo)));
  plot.script =
      ratio_axis("y", y.lo, y.hi) + "set yrange [" + number(y.lo / air) + ":" + number(y.hi * air) +
      "]\nset xrange [0.4:" + number(static_cast<double>(n) + 0.6) +
      "]\nset ylabel \"speed-up\"\n" +
      rectangle("graph 0, first " + number(*m.lo), "graph 1, first " + number(*m.hi), "#2f7ed8");
  if (near_one)
    plot.script += rectangle("graph 0, first " + number(1 / (1 + margin)),
                             "graph 1, first " + number(1 + margin), "#7d7d7d") +
                   "set arrow from graph 0, first 1 to graph 1, first 1 nohead lc rgb \"#7d7d7d\" "
                   "dt 2\n";
  plot.script += "set arrow from graph 0, first " + number(*m.value) + " to graph 1, first " +
                 number(*m.value) +
                 " nohead lc rgb \"#2f7ed8\"\n"
                 "plot DATA using 1:2:xticlabels(3) with points lc rgb \"#c8641b\" pt 7 ps 0.9 "
                 "notitle\n";
  plot.table = table.markdown();
  return plot;
}

}  // namespace

std::vector<Plot> comparison_plots(const Model& model) {
  const std::vector<const Metric*> all = drawable(model);
  std::vector<Plot> made;
  if (all.empty()) return made;
  made.push_back(forest(all));
  for (size_t i = 0; i < std::min(all.size(), kPairedPlots); ++i)
    if (Plot plot = pairs(*all[i]); !plot.data.empty()) made.push_back(std::move(plot));
  return made;
}

}  // namespace reports

#include <algorithm>
#include <cmath>
#include <optional>

#include "harness/results/number.h"
#include "reports/escape.h"
#include "reports/markdown/table.h"
#include "reports/plots/data.h"
#include "reports/plots/plot.h"

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

/// A comparison with a valid figure and its interval, all above 0.
struct Compared {
  const Metric* metric;
  double value, lo, hi;
};

std::optional<Compared> drawable(const Metric& m) {
  if (!m.withheld.empty() || !m.value || !m.lo || !m.hi) return std::nullopt;
  if (!(*m.value > 0 && *m.lo > 0 && *m.hi > 0) || !std::isfinite(*m.hi)) return std::nullopt;
  return Compared{&m, *m.value, *m.lo, *m.hi};
}

std::vector<Compared> all_drawable(const Model& model) {
  std::vector<Compared> all;
  for (const Metric* m : model.comparisons)
    if (const auto one = drawable(*m)) all.push_back(*one);
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

Plot forest(const std::vector<Compared>& all) {
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
    const auto& [metric, value, lo, hi] = all[i];
    const double y = static_cast<double>(rows - i);
    plot.data += row({number(value), number(y), number(lo), number(hi), label(metric->name)});
    table.add({code(metric->id), harness::format_number(value), harness::format_interval(lo, hi),
               escape(metric->verdict)});
    least = std::min(least, lo);
    largest = std::max(largest, hi);
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

/// The pairs of processes, as data and as a table. Empty data without any.
Plot pair_data(const Compared& c, Extent& y, size_t& n) {
  Plot plot;
  Table table({"process", "baseline>", "candidate>", "speed-up>"});
  const auto found = c.metric->details.find("processes");
  if (found == c.metric->details.end() || !found->is_array()) return plot;
  for (const json& process : *found) {
    const auto speedup = process.is_object() ? positive(process, "speedup") : std::nullopt;
    if (!speedup) continue;
    const auto named = process.find("process");
    const std::string name =
        named != process.end() && named->is_string() ? named->get<std::string>() : "";
    plot.data += row({number(static_cast<double>(++n)), number(*speedup), label(name, 12)});
    y.take(*speedup);
    const auto cell = [&](const char* arm) {
      const auto time = positive(process, arm);
      return time ? harness::format_number(*time) : std::string("–");
    };
    table.add({code(name), cell("baseline"), cell("candidate"), harness::format_number(*speedup)});
  }
  plot.table = table.markdown();
  return plot;
}

std::string level(double at, const char* look) {
  return "set arrow from graph 0, first " + number(at) + " to graph 1, first " + number(at) +
         " nohead " + look + "\n";
}

std::string band(double lo, double hi, const char* colour) {
  return rectangle("graph 0, first " + number(lo), "graph 1, first " + number(hi), colour);
}

Plot pairs(const Compared& c) {
  Extent y{c.lo, c.hi};
  size_t n = 0;
  Plot plot = pair_data(c, y, n);
  if (n == 0) return plot;
  plot.name = "pairs-" + file_name(c.metric->name);
  plot.phase = c.metric->phase;
  plot.title = "Pairs of " + code(c.metric->id);
  const double margin = margin_of(*c.metric);
  const bool near_one = y.lo < 1.5 && y.hi > 0.67;  // else 1 is far away and would flatten the rest
  if (near_one) {
    y.take(1 / (1 + margin));
    y.take(1 + margin);
  }
  plot.alt = "Speed-up of each of " + std::to_string(n) + " pairs of processes; the band is the " +
             "99 % interval " + harness::format_interval(c.lo, c.hi) + ", the line the estimate " +
             harness::format_number(c.value) +
             (near_one ? "; the grey band is the margin of no difference around 1" : "");
  const double air = std::max(1.002, std::sqrt(std::sqrt(y.hi / y.lo)));
  plot.script = ratio_axis("y", y.lo, y.hi) + "set yrange [" + number(y.lo / air) + ":" +
                number(y.hi * air) + "]\nset xrange [0.4:" + number(static_cast<double>(n) + 0.6) +
                "]\nset ylabel \"speed-up\"\n" + band(c.lo, c.hi, "#2f7ed8");
  if (near_one)
    plot.script +=
        band(1 / (1 + margin), 1 + margin, "#7d7d7d") + level(1, "lc rgb \"#7d7d7d\" dt 2");
  plot.script += level(c.value, "lc rgb \"#2f7ed8\"") +
                 "plot DATA using 1:2:xticlabels(3) with points lc rgb \"#c8641b\" pt 7 ps 0.9 "
                 "notitle\n";
  return plot;
}

}  // namespace

std::vector<Plot> comparison_plots(const Model& model) {
  const std::vector<Compared> all = all_drawable(model);
  std::vector<Plot> made;
  if (all.empty()) return made;
  made.push_back(forest(all));
  for (size_t i = 0; i < std::min(all.size(), kPairedPlots); ++i)
    if (Plot plot = pairs(all[i]); !plot.data.empty()) made.push_back(std::move(plot));
  return made;
}

}  // namespace reports

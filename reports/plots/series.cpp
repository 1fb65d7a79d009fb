#include <algorithm>
#include <cmath>
#include <optional>

#include "harness/results/number.h"
#include "reports/escape.h"
#include "reports/markdown/table.h"
#include "reports/plots/data.h"
#include "reports/plots/plot.h"

/// Figures over steps (throughput, memory, loss with its limits) and over sizes.
namespace reports {
namespace {

using harness::Series;
using nlohmann::json;

constexpr size_t kLines = 12;
constexpr size_t kTableRows = 16;

/// A point is [x, y] or [x, y, lo, hi]; anything else is no point.
bool is_point(const json& point) {
  return point.is_array() && (point.size() == 2 || point.size() == 4) &&
         std::ranges::all_of(point, [](const json& n) { return n.is_number(); });
}

struct Line {
  std::string name;
  std::vector<std::vector<double>> points;
};

std::vector<Line> lines_of(const Series& series) {
  std::vector<Line> lines;
  if (!series.lines.is_array()) return lines;
  for (const json& one : series.lines) {
    if (lines.size() == kLines || !one.is_object() || !one.contains("points")) continue;
    Line line;
    if (one.contains("name") && one["name"].is_string()) line.name = one["name"];
    for (const json& point : one["points"])
      if (is_point(point)) line.points.push_back(point.get<std::vector<double>>());
    if (!line.points.empty()) lines.push_back(std::move(line));
  }
  return lines;
}

struct Limit {
  std::string criterion, op;
  double value = 0;
};

std::vector<Limit> limits_of(const Series& series) {
  std::vector<Limit> limits;
  if (!series.limits.is_array()) return limits;
  for (const json& one : series.limits)
    if (one.is_object() && one.contains("value") && one["value"].is_number())
      limits.push_back({one.value("criterion", ""), one.value("op", ""), one["value"]});
  return limits;
}

/// Rows spread evenly, the first and the last among them.
std::vector<size_t> table_rows(size_t count) {
  std::vector<size_t> rows;
  const size_t shown = std::min(count, kTableRows);
  for (size_t i = 0; i < shown; ++i) rows.push_back(shown == 1 ? 0 : i * (count - 1) / (shown - 1));
  return rows;
}

std::string table_of(const Series& series, const std::vector<Line>& lines) {
  const bool named = lines.size() > 1 || series.kind == "scaling";
  Table table(
      {named ? "line" : "process", escape(series.x) + ">", escape(series.unit) + ">", "99 %"});
  for (const Line& line : lines)
    for (const size_t i : table_rows(line.points.size())) {
      const auto& point = line.points[i];
      table.add({code(line.name), harness::format_number(point[0]),
                 harness::format_number(point[1]),
                 point.size() == 4 ? harness::format_interval(point[2], point[3]) : "–"});
    }
  return table.markdown();
}

/// A gap of two empty lines ends a block, which the script calls by its index. The first row of a
/// block is its name.
std::string data_of(const std::vector<Line>& lines) {
  std::string data;
  for (const Line& line : lines) {
    data += row({"x", label(line.name, 32), "lo", "hi"});
    for (const auto& point : line.points)
      data += row({number(point[0]), number(point[1]), number(point[point.size() == 4 ? 2 : 1]),
                   number(point[point.size() == 4 ? 3 : 1])});
    data += "\n\n";
  }
  return data;
}

/// A dashed line a limit, labelled with its number alone: its criterion stands below the plot.
std::string limit_commands(const std::vector<Limit>& limits) {
  std::string out;
  for (const Limit& limit : limits)
    out += "set arrow from graph 0, first " + number(limit.value) + " to graph 1, first " +
           number(limit.value) + " nohead lc rgb \"#d0393b\" dt 2 lw 1.5\n";
  return out;
}

/// The picture shows every point and every limit that is near enough not to flatten them.
std::vector<Limit> near_limits(const std::vector<Line>& lines, const std::vector<Limit>& limits) {
  double lo = HUGE_VAL, hi = -HUGE_VAL;
  for (const Line& line : lines)
    for (const auto& point : line.points) {
      lo = std::min(lo, point[1]);
      hi = std::max(hi, point[1]);
    }
  const double air = 1.5 * (hi - lo) + 0.2 * std::abs(hi);
  std::vector<Limit> near;
  for (const Limit& limit : limits)
    if (limit.value > lo - air && limit.value < hi + air) near.push_back(limit);
  return near;
}

std::string y_range(const std::vector<Line>& lines, const std::vector<Limit>& limits) {
  double lo = HUGE_VAL, hi = -HUGE_VAL;
  const auto take = [&](double value) {
    lo = std::min(lo, value);
    hi = std::max(hi, value);
  };
  for (const Line& line : lines)
    for (const auto& point : line.points)
      for (size_t i = 1; i < point.size(); ++i) take(point[i]);
  for (const Limit& limit : limits) take(limit.value);
  // What moves by less than a thousandth is flat, and its ticks differ in the digits they show.
  const double least = (hi > lo ? 5e-4 : 0.05) * std::abs(hi);
  const double air = std::max({1e-9, 0.06 * (hi - lo), least});
  return "set yrange [" + number(lo - air) + ":" + number(hi + air) + "]\n";
}

/// Times against the number of tokens, of which the first line's are compared with the others'.
bool is_time_of_lengths(const Series& series) {
  return series.kind == "scaling" && series.x == "tokens" && series.unit == "ms";
}

std::string axes(const Series& series) {
  const std::string unit = axis_unit(series.unit);
  std::string out = unit.empty() ? "" : "set ylabel \"" + unit + "\"\n";
  if (series.kind == "steps") return out + "set xlabel \"step\"\n";
  if (series.x == "tokens") out += "set xlabel \"tokens\"\n";
  if (is_time_of_lengths(series)) out += "set logscale y 10\n";
  return out + "set logscale x 2\n";
}

/// From where on the first line of a series is below another one.
struct Crossing {
  std::string other;
  size_t common = 0;             ///< lengths that both have
  std::optional<double> tokens;  ///< interpolated in logarithms; empty: above at the largest
  bool everywhere = false;       ///< below at every common length
};

std::vector<Crossing> crossings_of(const Series& series, const std::vector<Line>& lines) {
  std::vector<Crossing> found;
  if (!is_time_of_lengths(series)) return found;
  for (size_t i = 1; i < lines.size(); ++i) {
    std::vector<std::pair<double, double>> gaps;  // log tokens, log of other / first
    for (const auto& first : lines[0].points)
      for (const auto& other : lines[i].points)
        if (other[0] == first[0] && first[0] > 0 && first[1] > 0 && other[1] > 0)
          gaps.emplace_back(std::log(first[0]), std::log(other[1] / first[1]));
    Crossing one{lines[i].name, gaps.size(), {}, false};
    size_t from = gaps.size();
    while (from > 0 && gaps[from - 1].second > 0) --from;
    one.everywhere = from == 0 && !gaps.empty();
    if (from > 0 && from < gaps.size()) {
      const auto [x0, y0] = gaps[from - 1];
      const auto [x1, y1] = gaps[from];
      one.tokens = std::exp(x0 + (x1 - x0) * -y0 / (y1 - y0));
    }
    if (one.common > 0) found.push_back(one);
  }
  return found;
}

std::string crossing_text(const std::string& first, const Crossing& crossing) {
  const std::string faster = first + " is faster than " + crossing.other;
  if (crossing.everywhere) return faster + " at every length that both have";
  if (!crossing.tokens) return first + " is not faster than " + crossing.other + " at the longest";
  return faster + " from about " + harness::format_number(std::round(*crossing.tokens / 10) * 10) +
         " tokens on";
}

/// A dotted line at each crossing point.
std::string crossing_commands(const std::vector<Crossing>& crossings) {
  std::string out;
  for (const Crossing& one : crossings)
    if (one.tokens)
      out += "set arrow from first " + number(*one.tokens) + ", graph 0 to first " +
             number(*one.tokens) + ", graph 1 nohead lc rgb \"#808080\" dt 3 lw 1.5\n";
  return out;
}

std::string plot_command(const Series& series, const std::vector<Line>& lines) {
  const bool scaling = series.kind == "scaling";
  std::string out = "plot ";
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string block = "DATA index " + std::to_string(i) + " using 1:2";
    const std::string title = lines.size() > 1 || scaling ? " title columnheader(2)" : " notitle";
    out += (i > 0 ? ", " : "") + block + " with " + (scaling ? "linespoints ps 0.8" : "lines") +
           " " + (scaling ? line_style(i) : line_style(i).substr(0, line_style(i).find(" pt"))) +
           title;
    if (scaling)
      out += ", DATA index " + std::to_string(i) + " using 1:2:3:4 with yerrorbars ps 0 " +
             line_style(i) + " notitle";
  }
  return out + "\n";
}

Plot plot_of(const Series& series) {
  const std::vector<Line> lines = lines_of(series);
  if (lines.empty()) return {};
  const std::vector<Limit> limits = limits_of(series), shown = near_limits(lines, limits);
  Plot plot;
  plot.name = file_name(series.id);
  plot.phase = series.phase;
  plot.title = escape(series.title) + " " + code(series.id);
  plot.alt = plain(series.title, 120) + ", step " + plain(series.phase, 80) +
             (lines.size() > 1 ? ": " + std::to_string(lines.size()) + " lines" : "") +
             (shown.empty() ? "" : "; dashed: the thresholds of its criteria");
  const std::vector<Crossing> crossings = crossings_of(series, lines);
  for (const Crossing& one : crossings)
    plot.alt += "; " + plain(crossing_text(lines[0].name, one), 120);
  plot.data = data_of(lines);
  plot.script = axes(series) + (is_time_of_lengths(series) ? "" : y_range(lines, shown)) +
                limit_commands(shown) + crossing_commands(crossings) +
                "set key outside bottom center horizontal\n" + plot_command(series, lines);
  plot.table = table_of(series, lines);
  for (const Limit& limit : limits)
    plot.table += "Threshold of " + code(limit.criterion) + ": " + escape(limit.op) + " " +
                  escape(harness::format_value(limit.value, series.unit)) + ".\n\n";
  for (const Crossing& one : crossings)
    plot.table += escape(crossing_text(lines[0].name, one)) + ".\n\n";
  return plot;
}

}  // namespace

std::vector<Plot> series_plots(const Model& model) {
  std::vector<Plot> made;
  for (const Series& series : model.results.series)
    if (Plot plot = plot_of(series); !plot.data.empty()) made.push_back(std::move(plot));
  return made;
}

}  // namespace reports

#include "harness/evidence/tables/series.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

namespace harness {
namespace {

using nlohmann::json;

/// A figure of the heartbeats of completed steps.
struct Quantity {
  const char* name;
  const char* title;
  const char* unit;
  const char* metric;  ///< start of the names of figures that sum it up, behind the phase
  std::optional<double> (*of)(const base::protocol::Beat&);
};

std::optional<double> loss_of(const base::protocol::Beat& beat) {
  const auto loss = beat.extra.find("loss");
  if (loss == beat.extra.end() || !loss->is_number()) return std::nullopt;
  return loss->get<double>();
}

std::optional<double> memory_of(const base::protocol::Beat& beat) { return beat.mem_mib; }

constexpr Quantity kQuantities[] = {
    {"loss", "Loss over steps", "nat", "loss.", loss_of},
    {"memory", "Memory over steps", "mib", "memory.peak_mib", memory_of},
    {"rate", "Throughput over steps", "tok_s", "speed.rate_tok_s",
     [](const base::protocol::Beat& beat) {
       return beat.rate_unit == "tok_s" ? beat.rate : std::optional<double>();
     }},
};

/// The loss of rows that are never trained on, at the steps behind which it was measured.
std::optional<double> validation_of(const base::protocol::Beat& beat) {
  const auto loss = beat.extra.find("validation_loss");
  if (loss == beat.extra.end() || !loss->is_number()) return std::nullopt;
  return loss->get<double>();
}

/// A process has one line, unless its heartbeats name theirs (`extra.line`).
std::string line_of(const base::protocol::Beat& beat, const RawGroup& group) {
  const auto line = beat.extra.find("line");
  return line != beat.extra.end() && line->is_string() ? line->get<std::string>() : group.id;
}

/// A value as its line shows it: seven digits are beyond the pixels of any screen, and half the
/// bytes of sixteen.
double drawn(double value) {
  constexpr int kDigits = 7;
  std::array<char, 32> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value,
                                          std::chars_format::general, kDigits);
  double out = value;
  if (error == std::errc()) std::from_chars(text.data(), end, out);
  return out;
}

constexpr size_t kFewestPoints = 3;

void add_line(Series& series, const std::string& name, const json& points) {
  if (points.size() < kFewestPoints) return;
  series.lines.push_back(
      {{"name", name}, {"seen", points.size()}, {"points", thinned(points, kLinePoints)}});
}

/// A line whose points are within 1 % of each other.
bool is_flat(const json& line) {
  double least = HUGE_VAL, largest = -HUGE_VAL;
  for (const json& point : line.at("points")) {
    least = std::min(least, point[1].get<double>());
    largest = std::max(largest, point[1].get<double>());
  }
  return largest <= 1.01 * least;
}

std::optional<double> number_of(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

/// The numbers of the first column; empty unless every row has one and they grow.
std::vector<double> growing_sizes(const KindTable& table) {
  std::vector<double> sizes;
  for (const auto& row : table.rows) {
    const auto size = row.empty() ? std::nullopt : number_of(row.front());
    if (!size || (!sizes.empty() && *size <= sizes.back())) return {};
    sizes.push_back(*size);
  }
  return sizes;
}

/// [x, value, lo, hi] of a cell "=FIGURE"; null where there is no valid figure.
json point_of(double x, const std::string& cell, std::span<const Metric> figures,
              std::string& unit) {
  if (!cell.starts_with("=")) return nullptr;
  for (const Metric& metric : figures) {
    if (metric.name != metric.phase + "." + cell.substr(1)) continue;
    if (!metric.value || !metric.withheld.empty()) return nullptr;
    unit = metric.unit;
    if (metric.lo && metric.hi) return {x, *metric.value, *metric.lo, *metric.hi};
    return {x, *metric.value};
  }
  return nullptr;
}

}  // namespace

json thinned(const json& points, size_t most) {
  if (points.size() <= most) return points;
  const size_t stretches = std::max<size_t>(1, most / 2);
  json kept = json::array();
  for (size_t s = 0; s < stretches; ++s) {
    const size_t begin = s * points.size() / stretches, end = (s + 1) * points.size() / stretches;
    size_t least = begin, largest = begin;
    for (size_t i = begin; i < end; ++i) {
      if (points[i][1] < points[least][1]) least = i;
      if (points[i][1] > points[largest][1]) largest = i;
    }
    kept.push_back(points[std::min(least, largest)]);
    if (least != largest) kept.push_back(points[std::max(least, largest)]);
  }
  return kept;
}

std::vector<Series> step_series(const std::string& phase, const std::vector<RawGroup>& groups) {
  std::vector<Series> all;
  for (const Quantity& quantity : kQuantities) {
    Series series{.id = "S-" + phase + "." + quantity.name,
                  .phase = phase,
                  .title = quantity.title,
                  .kind = "steps",
                  .x = "step",
                  .unit = quantity.unit};
    for (const RawGroup& group : groups) {
      std::map<std::string, json> lines;
      const auto add_point = [&](const base::protocol::Beat& beat) {
        if (const auto y = quantity.of(beat))
          lines[line_of(beat, group)].push_back({beat.step, drawn(*y)});
        if (const auto y = validation_of(beat); y && quantity.of == loss_of)
          lines[line_of(beat, group) + ", kept out"].push_back({beat.step, drawn(*y)});
      };
      std::ranges::for_each(group.earlier_steps, add_point);
      std::ranges::for_each(group.steps, add_point);
      for (const auto& [name, points] : lines) add_line(series, name, points);
    }
    const bool says_nothing =
        quantity.of == memory_of && std::ranges::all_of(series.lines, is_flat);
    if (!series.lines.empty() && !says_nothing) all.push_back(std::move(series));
  }
  return all;
}

std::vector<Series> scaling_series(const KindSpec& kind, const std::string& phase,
                                   std::span<const Metric> figures) {
  std::vector<Series> all;
  for (const KindTable& table : kind.tables) {
    const std::vector<double> sizes = growing_sizes(table);
    std::map<std::string, Series> by_unit;
    for (size_t column = 1; column < table.columns.size(); ++column) {
      json points = json::array();
      std::string unit;
      for (size_t row = 0; row < sizes.size(); ++row) {
        if (column >= table.rows[row].size()) continue;
        const json point = point_of(sizes[row], table.rows[row][column], figures, unit);
        if (!point.is_null()) points.push_back(point);
      }
      add_line(by_unit[unit], table.columns[column], points);
    }
    for (auto& [unit, series] : by_unit) {
      if (series.lines.empty()) continue;
      series.id = "S-" + phase + "." + table.id + "." + unit;
      series.phase = phase;
      series.title = table.title;
      series.kind = "scaling";
      series.x = table.columns.front();
      series.unit = unit;
      all.push_back(std::move(series));
    }
  }
  return all;
}

void add_limits(std::vector<Series>& series, const std::vector<CriterionResult>& criteria) {
  for (Series& one : series) {
    if (one.kind != "steps") continue;
    for (const Quantity& quantity : kQuantities) {
      if (one.id != "S-" + one.phase + "." + quantity.name) continue;
      for (const CriterionResult& criterion : criteria)
        if (criterion.threshold && criterion.unit == one.unit &&
            criterion.metric.starts_with(one.phase + "." + quantity.metric))
          one.limits.push_back(
              {{"criterion", criterion.id}, {"op", criterion.op}, {"value", *criterion.threshold}});
    }
  }
}

}  // namespace harness

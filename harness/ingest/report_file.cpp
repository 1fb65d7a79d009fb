#include "harness/ingest/report_file.h"

#include <set>

#include "base/json/non_finite.h"
#include "harness/ingest/benchmark_entries.h"
#include "harness/ingest/gtest_checks.h"
#include "harness/results/number.h"
#include "harness/schema/error.h"
#include "harness/stats/order_statistics.h"

namespace harness {
namespace {

using nlohmann::json;
using stats::Interval;

/// Both intervals together hold with the verdict's level.
constexpr double kEachOfTwo = 1 - (1 - stats::kVerdictLevel) / 2;
/// The fewest repetitions that have such an interval of their median.
constexpr size_t kLeastForInterval = 9;

json parsed(std::string_view text, const std::string& name) {
  try {
    return json::parse(base::quote_non_finite(text));
  } catch (const json::exception& error) {
    throw Error(name + " is no JSON: " + error.what());
  }
}

void note_context(const json& report, BenchmarkFile& file) {
  const json context = report.value("context", json::object());
  if (!context.is_object()) return;
  if (library_build(report) == "debug build")
    file.deviations.push_back(std::string(kBenchmarkLibrary) +
                              " itself is a debug build, which takes longer around each iteration");
  for (const char* key : {"build_type", "nsa_build_type", "CMAKE_BUILD_TYPE"})
    if (context.value(key, "") == "debug" || context.value(key, "") == "Debug")
      file.deviations.push_back(std::string(key) + " is a debug build: its times are no evidence");
  if (context.value("cpu_scaling_enabled", false))
    file.deviations.emplace_back("the processor changes its clock (cpu_scaling_enabled)");
}

void note_repetitions(BenchmarkFile& file) {
  size_t few = 0;
  for (const auto& [name, series] : file.series)
    few += series.problem.empty() && series.samples.size() < kLeastForInterval;
  if (few > 0)
    file.deviations.push_back(std::to_string(few) + " of " + std::to_string(file.series.size()) +
                              " benchmarks have too few repetitions for an interval: "
                              "--benchmark_repetitions=" +
                              std::to_string(kLeastForInterval) + " or more");
}

std::optional<Interval> interval_of(const BenchmarkSeries& series, double level) {
  return stats::median_interval(series.samples, level);
}

std::string figure(double value, const std::optional<Interval>& bounds) {
  return format_number(value) + (bounds ? " " + format_interval(bounds->lo, bounds->hi) : "");
}

std::string time_text(const BenchmarkSeries* series) {
  if (series == nullptr) return "–";
  if (!series->problem.empty()) return series->problem;
  return figure(stats::median(series->samples), interval_of(*series, stats::kVerdictLevel)) + " " +
         series->unit;
}

json benchmark_table(const BenchmarkFile& file) {
  json rows = json::array();
  for (const auto& [name, series] : file.series) {
    std::string counters;
    for (const auto& [counter, values] : series.counters)
      counters +=
          (counters.empty() ? "" : ", ") + counter + " " + format_number(stats::median(values));
    rows.push_back({name, time_text(&series), series.samples.size(),
                    counters.empty() ? json() : json(counters)});
  }
  return {{"id", "benchmarks"},
          {"title", "Median of the repetitions, with 99 % interval"},
          {"phase", ""},
          {"columns", {"benchmark", "time", "repetitions", "counters"}},
          {"rows", rows}};
}

IngestedFile benchmarks(const json& report, const std::string& name) {
  const BenchmarkFile file = read_benchmark_file(report, name);
  IngestedFile out{.tables = {benchmark_table(file)}, .deviations = file.deviations, .problem = {}};
  for (const auto& [benchmark, series] : file.series)
    if (!series.problem.empty() && out.problem.empty())
      out.problem = benchmark + ": " + series.problem;
  return out;
}

IngestedFile tests(const json& report, const std::string& name) {
  std::vector<base::protocol::Check> checks;
  try {
    checks = read_gtest_checks(report);
  } catch (const json::exception& error) {
    throw Error(name + " is a report of neither Google Benchmark nor GoogleTest: " + error.what());
  }
  if (checks.empty()) throw Error(name + " has no test: nothing ran, so nothing passed");
  IngestedFile out;
  json rows = json::array();
  for (const auto& check : checks) {
    if (check.ok) continue;
    rows.push_back({check.id, check.code, check.detail});
    if (out.problem.empty()) out.problem = check.id + ": " + check.code;
  }
  const size_t failed = rows.size();
  out.tables = {{{"id", "tests"},
                 {"title", std::to_string(checks.size() - failed) + " of " +
                               std::to_string(checks.size()) + " tests passed"},
                 {"phase", ""},
                 {"columns", {"test that did not", "code", "why"}},
                 {"rows", rows}}};
  return out;
}

struct Ratio {
  double value = 0;
  std::optional<Interval> bounds;
};

Ratio ratio_of(const BenchmarkSeries& before, const BenchmarkSeries& after) {
  Ratio ratio{.value = stats::median(after.samples) / stats::median(before.samples), .bounds = {}};
  const auto x = interval_of(before, kEachOfTwo), y = interval_of(after, kEachOfTwo);
  if (x && y) ratio.bounds = Interval{y->lo / x->hi, y->hi / x->lo, stats::kVerdictLevel};
  return ratio;
}

std::string change_text(const Ratio& ratio) {
  if (!ratio.bounds) return "no interval";
  if (ratio.bounds->hi < 1) return "faster";
  if (ratio.bounds->lo > 1) return "slower";
  return "not told apart";
}

const BenchmarkSeries* find(const BenchmarkFile& file, const std::string& name) {
  const auto found = file.series.find(name);
  return found == file.series.end() ? nullptr : &found->second;
}

/// Why two series have no ratio; empty where they have one.
std::string obstacle(const BenchmarkSeries* before, const BenchmarkSeries* after) {
  if (before == nullptr) return "new";
  if (after == nullptr) return "lost";
  if (!before->problem.empty() || !after->problem.empty()) return "skipped or failed";
  return before->unit == after->unit ? "" : "other unit";
}

}  // namespace

bool is_benchmark_report(const json& report) {
  return report.is_object() && report.contains("benchmarks");
}

BenchmarkFile read_benchmark_file(const json& report, const std::string& name) {
  std::vector<BenchmarkEntry> entries;
  try {
    entries = read_benchmark_entries(report);
  } catch (const json::exception& error) {
    throw Error(name + " is no report of Google Benchmark (--benchmark_out=FILE): " + error.what());
  } catch (const BadBenchmarkField& field) {
    throw Error(name + ": " + field.what());
  }
  if (entries.empty()) throw Error(name + " has no benchmark: nothing ran, so nothing is measured");
  BenchmarkFile file;
  for (const BenchmarkEntry& entry : entries) {
    BenchmarkSeries& series = file.series[entry.name];
    if (!entry.error.empty()) {
      series.problem = entry.error;
      continue;
    }
    series.unit = entry.unit;
    series.samples.push_back(entry.value);
    for (const auto& [counter, value] : entry.counters) series.counters[counter].push_back(value);
  }
  note_context(report, file);
  note_repetitions(file);
  return file;
}

IngestedFile ingest_file(std::string_view text, const std::string& name) {
  const json report = parsed(text, name);
  return is_benchmark_report(report) ? benchmarks(report, name) : tests(report, name);
}

IngestedFile compare_benchmark_files(const BenchmarkFile& old_file, const BenchmarkFile& new_file) {
  std::set<std::string> names;
  for (const BenchmarkFile* file : {&old_file, &new_file})
    for (const auto& [name, series] : file->series) names.insert(name);
  IngestedFile out;
  json rows = json::array();
  for (const std::string& name : names) {
    const BenchmarkSeries *before = find(old_file, name), *after = find(new_file, name);
    const std::string none = obstacle(before, after);
    json row = {name, time_text(before), time_text(after)};
    if (none.empty()) {
      const Ratio ratio = ratio_of(*before, *after);
      row.push_back(figure(ratio.value, ratio.bounds));
      row.push_back(change_text(ratio));
    } else {
      row.push_back(nullptr);
      row.push_back(none);
      if (none != "new" && out.problem.empty()) out.problem = name + ": " + none;
    }
    rows.push_back(row);
  }
  out.tables = {{{"id", "benchmarks"},
                 {"title", "New beside old, with 99 % intervals"},
                 {"phase", ""},
                 {"columns", {"benchmark", "old", "new", "new / old", "new is"}},
                 {"rows", rows}}};
  for (const auto& [which, file] : {std::pair{"old: ", &old_file}, {"new: ", &new_file}})
    for (const std::string& each : file->deviations) out.deviations.push_back(which + each);
  return out;
}

}  // namespace harness

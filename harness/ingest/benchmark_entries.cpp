#include "harness/ingest/benchmark_entries.h"

#include <cmath>
#include <set>

#include "base/json/non_finite.h"

namespace harness {
namespace {

using nlohmann::json;

/// The number in `field`, which is above 0.
double positive(const json& entry, const std::string& benchmark, const char* field) {
  if (!entry.contains(field)) throw BadBenchmarkField(benchmark, field, "missing", false);
  const json& value = entry.at(field);
  if (value.is_number() && value.get<double>() > 0 && std::isfinite(value.get<double>()))
    return value.get<double>();
  const bool non_finite =
      value.is_string() && base::is_non_finite(value.get_ref<const std::string&>());
  throw BadBenchmarkField(benchmark, field, non_finite ? value.get<std::string>() : value.dump(),
                          non_finite);
}

/// Nanoseconds are not in the closed list of units.
void set_time(const json& entry, BenchmarkEntry& measured) {
  const auto unit = entry.at("time_unit").get<std::string>();
  measured.value = positive(entry, measured.name, "real_time");
  positive(entry, measured.name, "cpu_time");
  positive(entry, measured.name, "iterations");
  measured.unit = unit;
  if (unit != "ns") return;
  measured.value /= 1e3;
  measured.unit = "us";
}

/// A skipped benchmark has times of 0, so it is recognised before its times are read.
void set_result(const json& entry, BenchmarkEntry& measured) {
  if (entry.value("skipped", false)) {
    measured.code = "TEST_SKIPPED";
    measured.error = "skipped: " + entry.value("skip_message", "no message is given");
  } else if (entry.value("error_occurred", false)) {
    measured.code = "BENCHMARK_FAILED";
    measured.error = entry.value("error_message", "error without a message");
  } else {
    set_time(entry, measured);
  }
}

/// Numbers that are no part of the format.
void set_counters(const json& entry, BenchmarkEntry& measured) {
  static const std::set<std::string> kFormat = {"family_index", "per_family_instance_index",
                                                "repetitions",  "repetition_index",
                                                "threads",      "iterations",
                                                "real_time",    "cpu_time"};
  for (const auto& [key, value] : entry.items())
    if (value.is_number() && !kFormat.contains(key)) measured.counters[key] = value.get<double>();
}

}  // namespace

std::vector<BenchmarkEntry> read_benchmark_entries(const json& report) {
  std::vector<BenchmarkEntry> all;
  for (const auto& entry : report.at("benchmarks")) {
    if (entry.value("run_type", "iteration") != "iteration") continue;
    BenchmarkEntry one{.name = entry.value("run_name", entry.at("name").get<std::string>()),
                       .error = "",
                       .code = "",
                       .unit = ""};
    one.repetition = entry.value("repetition_index", int64_t{0});
    set_result(entry, one);
    set_counters(entry, one);
    all.push_back(std::move(one));
  }
  return all;
}

std::string library_build(const json& report) {
  const json context = report.value("context", json::object());
  const std::string build = context.is_object() ? context.value("library_build_type", "") : "";
  return build.empty() ? "build type not stated" : build + " build";
}

}  // namespace harness

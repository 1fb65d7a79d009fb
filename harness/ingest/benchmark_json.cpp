#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/json/non_finite.h"
#include "harness/ingest/compare_names.h"

namespace harness {
namespace {

using nlohmann::json;

struct Measured {
  std::string name, error;
  std::string code;  ///< of `error`
  double value = 0;
  std::string unit;
  int64_t repetition = 0;
};

/// A field of a benchmark that can be no measurement.
class BadField : public std::runtime_error {
 public:
  BadField(const std::string& benchmark, const char* field, const std::string& value,
           bool non_finite)
      : std::runtime_error("benchmark " + benchmark + ": " + field + " is " + value +
                           ", want a number above 0; run it again, or skip it with a message"),
        cause(non_finite ? "NON_FINITE" : "BAD_TEST_JSON") {}

  std::string cause;
};

/// The number in `field`, which is above 0.
double positive(const json& entry, const std::string& benchmark, const char* field) {
  if (!entry.contains(field)) throw BadField(benchmark, field, "missing", false);
  const json& value = entry.at(field);
  if (value.is_number() && value.get<double>() > 0 && std::isfinite(value.get<double>()))
    return value.get<double>();
  const bool non_finite =
      value.is_string() && base::is_non_finite(value.get_ref<const std::string&>());
  throw BadField(benchmark, field, non_finite ? value.get<std::string>() : value.dump(),
                 non_finite);
}

/// Nanoseconds are not in the closed list of units.
void set_time(const json& entry, Measured& measured) {
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
void set_result(const json& entry, Measured& measured) {
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

/// Aggregates follow from the samples; coefficients of variation, BigO and RMS are no times.
std::vector<Measured> read_repetitions(const json& report) {
  std::vector<Measured> all;
  for (const auto& entry : report.at("benchmarks")) {
    if (entry.value("run_type", "iteration") != "iteration") continue;
    Measured one{.name = entry.value("run_name", entry.at("name").get<std::string>()),
                 .error = "",
                 .code = "",
                 .unit = ""};
    one.repetition = entry.value("repetition_index", int64_t{0});
    set_result(entry, one);
    all.push_back(std::move(one));
  }
  return all;
}

IngestVerdict refused(const BadField& field) {
  return {field.cause, std::string("the Google Benchmark report is refused: ") + field.what()};
}

/// The verdict on a text that strict JSON refuses, naming benchmark and field where a time is NaN.
IngestVerdict unreadable(std::string_view text, const json::exception& error) {
  const std::string quoted = base::quote_non_finite(text);
  IngestVerdict as_text{quoted == text ? "BAD_TEST_JSON" : "NON_FINITE",
                        std::string("the Google Benchmark report cannot be read: ") + error.what()};
  try {
    read_repetitions(json::parse(quoted));
  } catch (const BadField& field) {
    return refused(field);
  } catch (const json::exception&) {
    return as_text;
  }
  return as_text;
}

/// The first repetition of each benchmark that failed or was skipped, else any.
std::map<std::string, Measured> results_by_name(const std::vector<Measured>& all) {
  std::map<std::string, Measured> results;
  for (const auto& one : all) {
    auto& result = results[one.name];
    if (result.error.empty()) result = one;
  }
  return results;
}

/// Checks, then samples. Returns why the group failed.
std::string emit(const std::vector<Measured>& all, const std::map<std::string, Measured>& results,
                 const std::string& case_id, base::protocol::Emitter& emitter) {
  std::string failure;
  for (const auto& [name, result] : results) {
    emitter.check({.case_id = case_id,
                   .id = name,
                   .ok = result.error.empty(),
                   .code = result.code,
                   .detail = result.error});
    if (!result.error.empty() && failure.empty()) failure = name + ": " + result.error;
  }
  int64_t order = 0;
  for (const auto& one : all)
    if (one.error.empty())
      emitter.sample({.case_id = case_id,
                      .series = one.name,
                      .value = one.value,
                      .unit = one.unit,
                      .round = one.repetition,
                      .order = order++});
  return failure;
}

}  // namespace

std::vector<std::string> parse_benchmark_list(std::string_view listing) {
  std::vector<std::string> names;
  for (size_t from = 0; from < listing.size();) {
    const auto end = std::min(listing.find('\n', from), listing.size());
    if (end > from) names.emplace_back(listing.substr(from, end - from));
    from = end + 1;
  }
  return names;
}

IngestVerdict ingest_benchmark(std::string_view text, const std::vector<std::string>& planned,
                               const IngestTarget& target, base::protocol::Emitter& emitter) {
  std::vector<Measured> all;
  try {
    all = read_repetitions(json::parse(text));
  } catch (const json::exception& error) {
    return unreadable(text, error);
  } catch (const BadField& field) {
    return refused(field);
  }
  const auto results = results_by_name(all);
  std::vector<std::string> run;
  for (const auto& [name, result] : results) run.push_back(name);
  auto verdict = compare_names(planned, run, "benchmarks");
  if (!verdict.cause.empty()) return verdict;
  emitter.hello(target.hello);
  const auto case_id = target.cases.empty() ? "" : target.cases.front();
  end_cases(target, emit(all, results, case_id, emitter), emitter);
  return {};
}

}  // namespace harness

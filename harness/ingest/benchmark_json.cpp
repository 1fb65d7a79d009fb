#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/ingest/compare_names.h"

namespace harness {
namespace {

using nlohmann::json;

struct Measured {
  std::string name, error;
  double value = 0;
  std::string unit;
  int64_t repetition = 0;
};

/// Nanoseconds are not in the closed list of units.
void set_time(const json& entry, Measured& measured) {
  const auto unit = entry.at("time_unit").get<std::string>();
  measured.value = entry.at("real_time").get<double>();
  measured.unit = unit;
  if (unit != "ns") return;
  measured.value /= 1e3;
  measured.unit = "us";
}

std::vector<Measured> read_repetitions(std::string_view text) {
  std::vector<Measured> all;
  const json report = json::parse(text);
  for (const auto& entry : report.at("benchmarks")) {
    if (entry.value("run_type", "iteration") != "iteration")
      continue;  // aggregates follow from samples
    Measured one{.name = entry.value("run_name", entry.at("name").get<std::string>()),
                 .error = "",
                 .unit = ""};
    one.repetition = entry.value("repetition_index", int64_t{0});
    if (entry.value("error_occurred", false))
      one.error = entry.value("error_message", "error without a message");
    else
      set_time(entry, one);
    all.push_back(std::move(one));
  }
  return all;
}

bool names_non_finite(std::string_view text) {
  for (const auto word :
       {": NaN", ": Infinity", ": -Infinity", ": nan", ": inf", ": -nan", ": -inf"})
    if (text.find(word) != std::string_view::npos) return true;
  return false;
}

std::map<std::string, std::string> errors_by_name(const std::vector<Measured>& all) {
  std::map<std::string, std::string> errors;
  for (const auto& one : all) {
    auto& error = errors[one.name];
    if (error.empty()) error = one.error;
  }
  return errors;
}

/// Checks, then samples. Returns why the group failed.
std::string emit(const std::vector<Measured>& all, const std::map<std::string, std::string>& errors,
                 const std::string& case_id, protocol::Emitter& emitter) {
  std::string failure;
  for (const auto& [name, error] : errors) {
    emitter.check({.case_id = case_id,
                   .id = name,
                   .ok = error.empty(),
                   .code = error.empty() ? "" : "BENCHMARK_FAILED",
                   .detail = error});
    if (!error.empty() && failure.empty()) failure = name + ": " + error;
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
                               const IngestTarget& target, protocol::Emitter& emitter) {
  std::vector<Measured> all;
  try {
    all = read_repetitions(text);
  } catch (const json::exception& e) {
    return {names_non_finite(text) ? "NON_FINITE" : "BAD_TEST_JSON",
            std::string("the Google Benchmark report cannot be read: ") + e.what()};
  }
  const auto errors = errors_by_name(all);
  std::vector<std::string> run;
  for (const auto& [name, error] : errors) run.push_back(name);
  auto verdict = compare_names(planned, run, "benchmarks");
  if (!verdict.cause.empty()) return verdict;
  emitter.hello(target.hello);
  const auto case_id = target.cases.empty() ? "" : target.cases.front();
  end_cases(target, emit(all, errors, case_id, emitter), emitter);
  return {};
}

}  // namespace harness

#include <map>
#include <nlohmann/json.hpp>

#include "base/json/non_finite.h"
#include "harness/ingest/benchmark_entries.h"
#include "harness/ingest/compare_names.h"

namespace harness {
namespace {

using nlohmann::json;

IngestVerdict refused(const BadBenchmarkField& field) {
  return {field.cause, std::string("the Google Benchmark report is refused: ") + field.what()};
}

/// The verdict on a text that strict JSON refuses, naming benchmark and field where a time is NaN.
IngestVerdict unreadable(std::string_view text, const json::exception& error) {
  const std::string quoted = base::quote_non_finite(text);
  IngestVerdict as_text{quoted == text ? "BAD_TEST_JSON" : "NON_FINITE",
                        std::string("the Google Benchmark report cannot be read: ") + error.what()};
  try {
    read_benchmark_entries(json::parse(quoted));
  } catch (const BadBenchmarkField& field) {
    return refused(field);
  } catch (const json::exception&) {
    return as_text;
  }
  return as_text;
}

/// The first repetition of each benchmark that failed or was skipped, else any.
std::map<std::string, BenchmarkEntry> results_by_name(const std::vector<BenchmarkEntry>& all) {
  std::map<std::string, BenchmarkEntry> results;
  for (const auto& one : all) {
    auto& result = results[one.name];
    if (result.error.empty()) result = one;
  }
  return results;
}

/// Checks, then samples. Returns why the group failed.
std::string emit(const std::vector<BenchmarkEntry>& all,
                 const std::map<std::string, BenchmarkEntry>& results, const std::string& case_id,
                 base::protocol::Emitter& emitter) {
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
  std::vector<BenchmarkEntry> all;
  std::string build;
  try {
    const json report = json::parse(text);
    all = read_benchmark_entries(report);
    build = library_build(report);
  } catch (const json::exception& error) {
    return unreadable(text, error);
  } catch (const BadBenchmarkField& field) {
    return refused(field);
  }
  const auto results = results_by_name(all);
  std::vector<std::string> run;
  for (const auto& [name, result] : results) run.push_back(name);
  auto verdict = compare_names(planned, run, "benchmarks");
  if (!verdict.cause.empty()) return verdict;
  base::protocol::Hello hello = target.hello;
  hello.versions[kBenchmarkLibrary] = build;
  emitter.hello(hello);
  const auto case_id = target.cases.empty() ? "" : target.cases.front();
  end_cases(target, emit(all, results, case_id, emitter), emitter);
  return {};
}

}  // namespace harness

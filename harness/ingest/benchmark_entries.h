#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace harness {

/// One repetition in a report of Google Benchmark.
struct BenchmarkEntry {
  std::string name, error;
  std::string code;  ///< of `error`
  double value = 0;  ///< real time of an iteration
  std::string unit;  ///< us, ms or s
  int64_t repetition = 0;
  std::map<std::string, double> counters = {};  ///< the benchmark's own figures, bytes_per_second
};

/// A field of a benchmark that can be no measurement.
class BadBenchmarkField : public std::runtime_error {
 public:
  BadBenchmarkField(const std::string& benchmark, const char* field, const std::string& value,
                    bool non_finite)
      : std::runtime_error("benchmark " + benchmark + ": " + field + " is " + value +
                           ", want a number above 0; run it again, or skip it with a message"),
        cause(non_finite ? "NON_FINITE" : "BAD_TEST_JSON") {}

  std::string cause;
};

/// All repetitions. Aggregates follow from them and are left out: coefficients of variation, BigO
/// and RMS are no times. Throws BadBenchmarkField, and json::exception for a text that is no
/// report.
std::vector<BenchmarkEntry> read_benchmark_entries(const nlohmann::json& report);

/// Its name among the versions of a process.
inline constexpr const char* kBenchmarkLibrary = "Google Benchmark";

/// How Google Benchmark itself was built, as the context of a report states it: "release build" or
/// "debug build", whose times hold the library's own checks; "build type not stated" where it is
/// not there.
std::string library_build(const nlohmann::json& report);

}  // namespace harness

#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Anybody's report of Google Benchmark or GoogleTest as tables with intervals: `nsa-validate
/// ingest FILE` and `compare OLD.json NEW.json`.
namespace harness {

/// The repetitions of one benchmark.
struct BenchmarkSeries {
  std::string unit;             ///< us, ms or s
  std::vector<double> samples;  ///< real time of an iteration, one a repetition
  std::map<std::string, std::vector<double>> counters;
  std::string problem;  ///< why it has no samples: skipped, or its error
};

struct BenchmarkFile {
  std::map<std::string, BenchmarkSeries> series;  ///< by name
  /// What makes its figures doubtful: a debug build of the library or of the program, a processor
  /// that changes its clock, repetitions too few for an interval.
  std::vector<std::string> deviations;
};

/// What a file holds, as tables of results.json, and whether it passes.
struct IngestedFile {
  std::vector<nlohmann::json> tables;
  std::vector<std::string> deviations;
  std::string problem;  ///< what failed or was skipped; empty: all passed
};

/// Whether a text is a report of Google Benchmark (it has `benchmarks`).
bool is_benchmark_report(const nlohmann::json& report);

/// `name` stands in errors. Throws Error for what is no such report, a report without benchmarks,
/// and a time that is missing, not finite or not above 0.
BenchmarkFile read_benchmark_file(const nlohmann::json& report, const std::string& name);

/// Of either format. Throws Error as above, and for a report without tests.
IngestedFile ingest_file(std::string_view text, const std::string& name);

/// Benchmark by benchmark: medians with 99 % intervals, and new over old with an interval that
/// holds where both of 99.5 % do (Bonferroni), the repetitions being independent. "faster" and
/// "slower" where that interval leaves 1 out. A benchmark that is lost, new, skipped or of another
/// unit has a row and no ratio. Throws Error as read_benchmark_file.
IngestedFile compare_benchmark_files(const BenchmarkFile& old_file, const BenchmarkFile& new_file);

}  // namespace harness

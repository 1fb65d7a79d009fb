#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/results/results.h"

namespace harness::cli {

/// The result of one run.
struct AbRow {
  int64_t seed = 0;
  std::string verdict;    ///< of the paired figure: FASTER, SLOWER, EQUIVALENT or INCONCLUSIVE
  std::string criterion;  ///< PASS, FAIL (after the confirmation) or INCONCLUSIVE
  nlohmann::json figure;  ///< value, lo, hi, n, noise floor and the ratio of every process
};

/// Reads it from results. Throws Error when they hold no paired figure with a verdict, or no
/// criterion on it.
AbRow row_of(const Results& results, int64_t seed);

/// Counts runs, and keeps each in a file of JSON lines as soon as it ended: a header line, then one
/// a run. A file that has the same header is counted on.
class AbTally {
 public:
  /// Throws ConfigError for a file of something else.
  AbTally(const nlohmann::json& header, const std::filesystem::path& file);

  void add(const AbRow& row, double seconds);
  int64_t runs() const { return static_cast<int64_t>(seconds_.size()); }

  std::string short_text() const;  ///< "3 EQUIVALENT, 1 SLOWER"
  /// Table of counts with the share that they leave possible (Clopper-Pearson, one side, 95 %).
  std::string text() const;
  nlohmann::json as_json() const;

 private:
  void take(const nlohmann::json& line);
  void append(const nlohmann::json& line) const;

  std::filesystem::path file_;
  nlohmann::json header_;
  std::map<std::string, int64_t> verdicts_, criteria_;
  std::vector<double> seconds_;
};

}  // namespace harness::cli

#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/evidence/storage/run_folder.h"
#include "harness/results/results.h"
#include "harness/why/step_difference.h"

/// Why a step of one run takes another time than a step of another run: the profiles of both,
/// joined by range and kernel, closed against steps that were not recorded.
namespace harness {

/// Median of steps with recording off; the bounds at the level of the verdict, where there are
/// enough of them.
struct MeasuredStep {
  double ms = 0;
  std::optional<double> lo, hi;
  size_t n = 0;
};

/// The difference of one profile that both runs have.
struct Explanation {
  std::string phase;
  std::string file;  ///< of the trace, relative to both runs
  std::optional<MeasuredStep> a, b;
  std::string note;           ///< how the phases differ but in what their steps do; may be empty
  std::string not_decidable;  ///< why there is no difference to explain; empty: there is one
  StepDifference recorded;    ///< empty where the profiles themselves cannot be compared
  /// What a step of B takes more than one of A; none without both measured steps.
  std::optional<double> measured_ms() const;
  /// What the profiles leave of the measured difference, ms; none without both measured steps.
  std::optional<double> unexplained_ms() const;
  /// The same as a share of the measured difference, percent.
  std::optional<double> unexplained_pct() const;
};

/// Every profile that both runs have; only those of `phase` unless it is empty. Throws ConfigError
/// where no profile is in both, naming the phases that record one, where `phase` is none of them,
/// and where its arguments other than `ranks` differ; EvidenceError for a damaged file.
std::vector<Explanation> explain_difference(const RunFolder& a, const Results& of_a,
                                            const RunFolder& b, const Results& of_b,
                                            const std::string& phase);

/// One explanation in sentences: what was measured, how much of it the profiles hold, and the
/// largest part. Plain text.
std::string difference_text(const Explanation& explanation);

/// Tables as in results.json: by range, and part by part (at most `most` parts, then the rest as
/// one row). Their last column adds up to the recorded difference.
std::vector<nlohmann::json> difference_tables(const Explanation& explanation, size_t most = 24);

/// Facts that change times and are no code: clocks of the comparisons, driver, libraries.
nlohmann::json surroundings_table(const Results& a, const Results& b);

}  // namespace harness

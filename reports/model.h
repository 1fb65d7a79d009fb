#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "harness/results/results.h"

/// What every renderer needs, looked up once. Holds pointers into the results it was made from.
namespace reports {

struct Model {
  explicit Model(const harness::Results& results);
  explicit Model(harness::Results&&) = delete;  // would leave dangling pointers

  const harness::Results& results;
  bool links_files =
      true;  ///< the report lies in the run folder, so that relative links lead there
  std::vector<const harness::CriterionResult*>
      criteria;                                     ///< FAIL, INCONCLUSIVE, NOT_EVALUATED, PASS
  std::vector<const harness::Metric*> comparisons;  ///< metrics of paired_ratio
  std::map<std::string_view, const harness::Metric*> metric_by_name;
  std::map<std::string_view, const harness::Artifact*> artifact_by_path;
  std::map<harness::StepStatus, int64_t> steps_count;

  const harness::Metric* metric(std::string_view name) const;  ///< null when there is none
  const harness::PhaseResult* phase(std::string_view name) const;
  /// Criteria of a step, worst first.
  std::vector<const harness::CriterionResult*> criteria_of(std::string_view phase) const;
  bool advisory_changed_exit() const;  ///< the gate turned a code that is not 0 into 0
};

/// A symbol and always the word: "✅ PASS", "⏸ DEFERRED".
std::string status_text(harness::StepStatus status);
std::string status_text(harness::CriterionVerdict verdict);
std::string status_text(const harness::Verdict& verdict);

/// "25.3 ms [24.9, 25.8]", "withheld", or "none" with its reason beside it elsewhere. Markdown.
std::string figure_text(const harness::Metric& metric);
bool is_multiple(const harness::Metric& metric);  ///< a ratio, shown as a factor
std::string interval_text(const std::optional<double>& lo, const std::optional<double>& hi);

/// ">= 1.5 ms"; "not resolved" where a baseline gave none.
std::string threshold_text(const harness::CriterionResult& criterion);

/// Raw evidence of a metric: the first file, as a link where these work, with the first 8 digits of
/// its sha256, and how many more there are. Empty without files.
std::string evidence_text(const Model& model, const harness::Metric* metric);

/// "1 DEFERRED, 13 COMPLETED": words with their counts, those that are 0 left out.
std::string steps_counts(const Model& model);

}  // namespace reports

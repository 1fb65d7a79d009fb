#pragma once
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/results/results.h"
#include "harness/runbook/runbook.h"

/// From figures to PASS/FAIL, and from those to the verdict of a run. Pure functions, no I/O.
namespace harness {

/// The reviewed baselines of a runbook on this hardware (configs/baselines/RUNBOOK/HW_KEY.json).
struct Baselines {
  std::string file;  ///< shown as threshold source; empty when there is none
  std::string
      problem;  ///< starts with BASELINE_INVALID: why the file may not be used; empty: usable
  std::map<std::string, double> values;           ///< metric name -> value
  std::map<std::string, std::string> units = {};  ///< metric name -> unit
  std::map<std::string, double> levels = {};      ///< metric name -> level; 0: exact
};

/// Judges one criterion on the metric it names. `metric` is null when no phase produced it.
///
/// An exact figure compares its value; a measured one compares the bound of its interval that the
/// operator asks for: `>=`, `>` the lower, `<=`, `<` the upper; `==` takes exact figures only.
///  - PASS: that bound holds;  FAIL: the other bound fails too, the whole interval is on the wrong
///  side
///  - INCONCLUSIVE: the interval holds the threshold, or there is none at this n
///  - NOT_EVALUATED: no metric, null, withheld, not finite, wrong unit, or an unusable baseline
///    (missing, zero, negative, not finite, other hardware, unit or confidence level: the reason
///    starts with BASELINE_INVALID)
CriterionResult judge(const CriterionSpec& spec, std::string_view phase, const Metric* metric,
                      const Baselines& baselines);

/// As above; looks the metric up by name.
CriterionResult judge(const CriterionSpec& spec, std::string_view phase,
                      std::span<const Metric> metrics, const Baselines& baselines);

/// A criterion that failed, beside the same criterion on a second, independent measurement: it
/// stays FAIL only when both FAIL, else it is INCONCLUSIVE; other verdicts stay as they are.
/// `again` is null when the second measurement is missing.
CriterionResult confirmed(CriterionResult first, const CriterionResult* again);

/// The first of `needed` (criterion ids) that is not PASS, with its verdict and reason; empty when
/// all PASS. An id that no criterion has counts as not evaluated.
std::string unmet_criteria(std::span<const std::string> needed,
                           std::span<const CriterionResult> criteria);

struct VerdictInput {
  std::span<const PhaseResult> phases;
  std::span<const CriterionResult> criteria;
  std::span<const Deviation> deviations;
  std::span<const std::string> faults;  ///< faults of harness or machine, one sentence each
  bool evidence_ok = false;             ///< the ledger and every hash verified
  std::string_view gate = "strict";     ///< strict | advisory
  std::string_view scope;  ///< from the runbook: what a verdict makes a statement about
  int64_t gpus = 0;        ///< that the plan was made for; count
};

/// The verdict table of docs/verdicts.md; the first line that matches wins: 6, 3, 1, 5, 4,
/// 8, 7, 0. A phase that the user left out (cause SKIPPED) and its criteria match no line but 8:
/// what was selected is judged, without a statement about the runbook. Beyond the table: a required
/// phase that is PARTIAL counts as undecided (5), and without one COMPLETED phase (5) or one
/// blocker or major criterion (4) a run is undecided, never GO. An `if_hardware` phase DEFERRED for
/// missing hardware caps the verdict at CONDITIONAL GO, and its criteria, which could not be
/// evaluated, are conditions instead of line 4. A `by_size` phase DEFERRED for GPU_COUNT and its
/// criteria match no line; the scope names it and the number of GPUs of the machine.
/// `--gate advisory` turns exit codes 4, 5 and 7 into 0; word and rule stay, and the rule states
/// it. 8 stays: a gate that asks for less than the runbook must not look green.
Verdict decide(const VerdictInput& input);

}  // namespace harness

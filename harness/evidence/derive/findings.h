#pragma once
#include <string>
#include <vector>

#include "harness/evidence/derive/raw_evidence.h"
#include "harness/results/results.h"

namespace harness {

/// What a failure code usually means and what to do about it.
struct CodeAdvice {
  std::string cause, action;
  Priority priority = Priority::kFollowUp;
};
CodeAdvice advice_for(const std::string& code);

/// Findings of one phase: those its workers reported, one SLOW for its processes under their floor,
/// SLOW_RANK for a rank that the others wait for, and its own failure.
std::vector<Finding> phase_findings(const PhaseResult& result, const RawPhase& raw,
                                    const std::vector<SlowProcess>& slow);

/// One for each code of a phase's failed checks.
std::vector<Finding> check_findings(const PhaseResult& result, const RawPhase& raw);

/// Findings that show only in the derived figures: withheld speeds and unusable baselines.
std::vector<Finding> result_findings(const Results& results);

}  // namespace harness

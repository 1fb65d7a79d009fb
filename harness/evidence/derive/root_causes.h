#pragma once
#include <string>
#include <vector>

#include "harness/results/results.h"

namespace harness {

/// A bound on a figure that must hold for a rule to apply.
struct RuleCondition {
  std::string figure;  ///< metric without its phase, e.g. "device.busy_pct"
  char op;             ///< '<' or '>'
  double bound;
};

/// A cause that several figures of one phase show together.
struct RootCauseRule {
  std::string code;                 ///< its cause and action stand in the table of findings.cpp
  std::string symptom;              ///< in words, the figures follow
  std::vector<RuleCondition> when;  ///< all must hold; the first is the fact behind the finding
};

/// LOADER_STALL has no rule here: the trainer judges its own loader
/// (nsa/train/record/loader_report), where the first batch and the scheduler are known, and reports
/// the finding itself.
const std::vector<RootCauseRule>& root_cause_rules();

/// One finding for each rule whose conditions all hold in one phase: symptom with every figure, the
/// id of the first as fact, cause, action, priority. A rule with a figure that is missing, null or
/// withheld does not apply.
std::vector<Finding> root_causes(const Results& results);

}  // namespace harness

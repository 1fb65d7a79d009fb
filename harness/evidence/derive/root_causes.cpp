#include "harness/evidence/derive/root_causes.h"

#include <algorithm>
#include <cmath>

#include "harness/evidence/derive/findings.h"
#include "harness/results/number.h"

namespace harness {
namespace {

/// The figure of one phase; null when it cannot be used.
const Metric* figure_of(const Results& results, const std::string& phase, const std::string& name) {
  const auto found = std::ranges::find(results.metrics, phase + "." + name, &Metric::name);
  const bool usable = found != results.metrics.end() && found->value &&
                      std::isfinite(*found->value) && found->withheld.empty();
  return usable ? &*found : nullptr;
}

bool holds(const RuleCondition& condition, double value) {
  return condition.op == '<' ? value < condition.bound : value > condition.bound;
}

std::string bound_text(const RuleCondition& condition, const Metric& metric, double value) {
  return metric.name + " " + format_value(value, metric.unit) + " (" + condition.op + " " +
         format_value(condition.bound, metric.unit) + ")";
}

/// The finding of the rule in a phase; an empty code when the rule does not apply.
Finding applied(const RootCauseRule& rule, const Results& results, const PhaseResult& phase) {
  std::string figures, first;
  for (const RuleCondition& condition : rule.when) {
    const Metric* metric = figure_of(results, phase.name, condition.figure);
    if (metric == nullptr) return {};
    const double value = metric->value.value_or(std::nan(""));
    if (!holds(condition, value)) return {};
    if (first.empty()) first = metric->id;
    figures += (figures.empty() ? "" : ", ") + bound_text(condition, *metric, value);
  }
  const CodeAdvice advice = advice_for(rule.code);
  return {"F-" + phase.name + "." + rule.code,
          rule.code,
          rule.symptom + ": " + figures,
          first,
          advice.cause,
          advice.action,
          advice.priority};
}

}  // namespace

const std::vector<RootCauseRule>& root_cause_rules() {
  static const std::vector<RootCauseRule> kRules = {
      // Launches and waits are both reported, whichever of them decides.
      {"HOST_BOUND",
       "the host waits for the device again and again",
       {{"step.syncs_per_step_count", '>', 20},
        {"device.busy_pct", '<', 80},
        {"step.launches_per_step_count", '>', 0}}},
      {"HOST_BOUND",
       "the device waits for the host",
       {{"device.busy_pct", '<', 60},
        {"step.launches_per_step_count", '>', 2000},
        {"step.syncs_per_step_count", '>', -1}}},
      {"MEMORY_GROWS", "memory grows over the steps", {{"memory.growth_ratio", '>', 1.25}}},
  };
  return kRules;
}

std::vector<Finding> root_causes(const Results& results) {
  std::vector<Finding> findings;
  for (const PhaseResult& phase : results.phases)
    for (const RootCauseRule& rule : root_cause_rules()) {
      Finding finding = applied(rule, results, phase);
      const bool known = std::ranges::find(findings, finding.id, &Finding::id) != findings.end();
      if (!finding.code.empty() && !known) findings.push_back(std::move(finding));
    }
  return findings;
}

}  // namespace harness

#include "nsa/train/record/loss_report.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace nsa::train {
namespace {

constexpr size_t kLastSteps = 20;
/// Far beyond what learning by heart or a noisy step costs.
constexpr double kMarginNat = 1;
constexpr double kLearnedNat = 0.05;

struct Measured {
  int64_t step = 0;
  double loss = 0, accuracy = 0;
};

/// What was measured on kept-out rows, in order.
std::vector<Measured> measured_losses(const RunFacts& facts, const std::vector<StepRecord>& trace) {
  std::vector<Measured> found;
  for (const StepRecord& r : trace)
    if (r.validation_loss)
      found.push_back({r.step, *r.validation_loss, r.validation_accuracy.value_or(0)});
  if (facts.evaluated_loss)
    found.push_back({trace.empty() ? 0 : trace.back().step, *facts.evaluated_loss,
                     facts.evaluated_accuracy.value_or(0)});
  return found;
}

}  // namespace

Check check_divergence(const RunFacts& facts, const std::vector<StepRecord>& trace) {
  const size_t count = std::min(kLastSteps, trace.size());
  double mean = 0;
  for (size_t i = trace.size() - count; i < trace.size(); ++i)
    mean += trace[i].loss / static_cast<double>(count);
  const auto above = [](const StepRecord& a, const StepRecord& b) { return !(a.loss >= b.loss); };
  const StepRecord& worst = *std::ranges::max_element(trace, above);
  const double first = trace.front().loss;
  const double knows_nothing = std::log(static_cast<double>(facts.vocab));
  const double bound = std::max(first, knows_nothing) + kMarginNat;
  const bool learned = mean < std::min(first, knows_nothing) - kLearnedNat;
  return {"loss_diverged",
          kDiverged,
          "the loss rose to " + std::to_string(worst.loss) + " nat at step " +
              std::to_string(worst.step) + " and ends at " + std::to_string(mean) +
              "; the first one was " + std::to_string(first) +
              ", that of a model that knows nothing is " + std::to_string(knows_nothing),
          worst.loss <= bound || learned,
          worst.loss,
          bound};
}

bool is_divergence(const Check& check) { return check.code == kDiverged && !check.ok; }

std::vector<Figure> validation_figures(const RunFacts& facts,
                                       const std::vector<StepRecord>& trace) {
  Figure last{"loss.validation_nat", "nat", std::nullopt, ""};
  Figure least{"loss.validation_min_nat", "nat", std::nullopt, ""};
  Figure right{"accuracy.validation_pct", "pct", std::nullopt, ""};
  std::string reason = facts.kept_out.empty()
                           ? "validate_every is 0: no loss of kept-out rows was asked for"
                           : "no step had its loss of kept-out rows measured";
  for (const Measured& one : measured_losses(facts, trace)) {
    if (!std::isfinite(one.loss)) {
      last.value = least.value = right.value = std::nullopt;
      reason = "the loss of kept-out rows is not finite at step " + std::to_string(one.step);
      break;
    }
    last.value = one.loss;
    least.value = std::min(least.value.value_or(one.loss), one.loss);
    right.value = 100 * one.accuracy;
  }
  if (!last.value) last.reason = least.reason = right.reason = reason;
  return {last, least, right};
}

}  // namespace nsa::train

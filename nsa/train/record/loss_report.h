#pragma once
#include <vector>

#include "nsa/train/record/judge.h"

namespace nsa::train {

inline constexpr const char* kDiverged = "DIVERGED";

/// DIVERGED: a loss rose more than 1 nat above both the first one and ln V, that of a model that
/// knows nothing, and the mean of the last ones is below neither of them. `trace`: steps with
/// targets, at least one.
Check check_divergence(const RunFacts& facts, const std::vector<StepRecord>& trace);
/// Whether this is that check, failed.
bool is_divergence(const Check& check);

/// Figures of kept-out rows: the last and the smallest loss, loss.validation_nat and
/// loss.validation_min_nat; the last accuracy, accuracy.validation_pct. A loss that is not finite
/// voids all; empty with a reason where there was none.
std::vector<Figure> validation_figures(const RunFacts& facts, const std::vector<StepRecord>& trace);

}  // namespace nsa::train

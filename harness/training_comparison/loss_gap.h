#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace harness {

using LossCurve = std::map<int64_t, double>;  ///< loss in nat by step, finite ones only

/// How far two training curves are apart at their end.
struct LossGap {
  int64_t steps = 0;    ///< compared: the last ones that both curves have, and no hole between
  double mean_nat = 0;  ///< mean of (first - second) over them
  double lo_nat = 0;    ///< 2.5 % of the steps differ by less,
  double hi_nat = 0;    ///< 97.5 % do not differ by more (nearest ranks)
  std::string problem;  ///< why there is no gap; empty: there is one
};

/// Differences step by step: both curves must have come from the same batches. A curve that ends
/// before the other, or that lacks one of the last `tail` steps, gives no gap.
LossGap loss_gap(const LossCurve& first, const LossCurve& second, int64_t tail);

}  // namespace harness

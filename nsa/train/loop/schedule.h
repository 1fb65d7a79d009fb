#pragma once
#include <cstdint>

namespace nsa::train {

/// Linear warm-up, then half a cosine. All counts are optimizer steps, never micro-batches.
struct Schedule {
  double peak = 1e-3;  ///< learning rate at the end of warm-up
  double floor = 0;    ///< learning rate at the last step
  int64_t warmup = 0;  ///< steps of linear warm-up
  int64_t steps = 1;   ///< steps of the whole run

  /// Learning rate of step k = 0, 1, .., steps-1:
  ///   k < warmup: peak * (k+1) / warmup
  ///   else:       floor + (peak-floor)/2 * (1 + cos(pi * (k+1-warmup) / (steps-warmup)))
  double at(int64_t step) const;
};

}  // namespace nsa::train

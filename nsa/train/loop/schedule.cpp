#include "nsa/train/loop/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace nsa::train {

double Schedule::at(int64_t step) const {
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  const auto decay_steps = static_cast<double>(std::max<int64_t>(1, steps - warmup));
  const double progress = std::min(1.0, static_cast<double>(step + 1 - warmup) / decay_steps);
  return floor + 0.5 * (peak - floor) * (1.0 + std::cos(std::numbers::pi * progress));
}

}  // namespace nsa::train

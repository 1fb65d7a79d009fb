#pragma once
#include <cstdint>
#include <optional>

#include "harness/results/results.h"

namespace harness {

/// Rate of several GPUs over that many times the rate of one, in percent. The bounds take each rate
/// at the end that is worst for them; none without bounds of both.
struct ScalingEfficiency {
  double pct = 0;
  std::optional<double> lo_pct, hi_pct;
};

/// `one`, `several`: figures in tok_s with a value > 0; ranks >= 1. Throws Error for anything else.
ScalingEfficiency scaling_efficiency(const Metric& one, const Metric& several, int64_t ranks);

}  // namespace harness

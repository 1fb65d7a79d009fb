#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/evidence/derive/raw_evidence.h"

namespace harness {

/// A rank for which the others wait.
struct SlowRank {
  std::string rank;   ///< g01.r1
  double own_ms = 0;  ///< its median time of load and forward pass, where no rank waits for another
  double next_ms = 0;  ///< the same of the slowest of the others
  int64_t slower = 0;  ///< steps in which it took a quarter longer than each of the others
  int64_t steps = 0;   ///< steps that all ranks reported
  std::string text() const;
};

/// The rank that takes a quarter longer than each of the others in nine of ten steps, of 20 or
/// more. Empty where there is none, or where ranks reported no times of their stages.
std::optional<SlowRank> slow_rank(const std::vector<RawGroup>& groups);

}  // namespace harness

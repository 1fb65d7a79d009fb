#pragma once
#include <vector>

#include "nsa/decode/cache/layer_cache.h"

namespace nsa {

/// The sequences of one step.
struct LayerCache::Active {
  std::vector<int64_t> ids;
  int64_t last = 0;     ///< largest t of the step's tokens, or of those that come at once
  at::Tensor sequence;  ///< [A] ids on the device
  at::Tensor t;         ///< [A] position of the new token; defined in a plain step
};

/// Sequences 0 .. B-1 by their lengths, the longest first, equal ones in their order.
std::vector<int32_t> longest_first(const std::vector<int64_t>& lengths);

}  // namespace nsa

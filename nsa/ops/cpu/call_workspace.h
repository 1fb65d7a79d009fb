#pragma once
#include <cstdint>

#include "nsa/config/config.h"

namespace nsa::cpu {

/// Bytes of panels, fp32 outputs and gradient sums that the branch which needs most takes while it
/// runs, for sequences of `tokens`; buffers of threads, which do not grow with them, are not in it.
double workspace_bytes(const NsaConfig& config, int64_t batch, int64_t tokens, bool backward);

}  // namespace nsa::cpu

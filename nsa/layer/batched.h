#pragma once
#include "nsa/layer/nsa_attention.h"

namespace nsa {

/// nsa_attention for checked batched inputs and effective options; what runs goes to the current
/// record and not into `ran`.
NsaOutputs batched_attention(const NsaInputs& inputs, const NsaConfig& config,
                             const NsaOptions& options);

}  // namespace nsa

#pragma once
#include "nsa/layer/nsa_attention.h"

namespace nsa {

/// Throws c10::Error `nsa::nsa_attention: <argument> must be ...` unless the batched inputs fit
/// each other and the configuration, and a given block_idx the inputs.
void check_call(const NsaInputs& inputs, const NsaConfig& config, const NsaOptions& options);

/// nsa_attention for checked batched inputs and effective options; what runs goes to the current
/// record and not into `ran`.
NsaOutputs batched_attention(const NsaInputs& inputs, const NsaConfig& config,
                             const NsaOptions& options);

}  // namespace nsa

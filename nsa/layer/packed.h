#pragma once
#include "nsa/layer/nsa_attention.h"

namespace nsa {

/// nsa_attention for packed documents: one batched call a document, joined. Reading cu_seqlens
/// synchronises with the device.
NsaOutputs packed_attention(const NsaInputs& inputs, const NsaConfig& config,
                            const NsaOptions& options);

}  // namespace nsa

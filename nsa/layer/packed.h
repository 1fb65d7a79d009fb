#pragma once
#include "nsa/layer/nsa_attention.h"

namespace nsa {

/// nsa_attention for packed documents with effective options: documents of similar length become
/// one padded batch, so that a thousand short ones cost a few calls; a long one is a batch of its
/// own. Reading cu_seqlens synchronises with the device.
NsaOutputs packed_attention(const NsaInputs& inputs, const NsaConfig& config,
                            const NsaOptions& options);

}  // namespace nsa

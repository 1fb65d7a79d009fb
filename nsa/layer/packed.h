#pragma once
#include <vector>

#include "nsa/layer/nsa_attention.h"

namespace nsa {

/// nsa_attention for packed documents with effective options: documents of similar length become
/// one padded batch, so that a thousand short ones cost a few calls; a long one is a batch of its
/// own. Reading cu_seqlens synchronises with the device.
NsaOutputs packed_attention(const NsaInputs& inputs, const NsaConfig& config,
                            const NsaOptions& options);

/// Throws c10::Error unless cu_seqlens ascend from 0 to T, no document longer than max_seqlen where
/// that is given; returns them. Synchronises with the device.
std::vector<int64_t> check_offsets(const NsaInputs& inputs);

}  // namespace nsa

#pragma once
#include "nsa/config/config.h"
#include "nsa/layer/nsa_attention.h"
#include "nsa/ops/attention/key_mask.h"

namespace nsa {

/// Keys that the masks of the batched operators let each row attend, int64 [B, S, Hkv, 3] in the
/// order cmp, sel, win; counted on the masks themselves. Work grows with S^2: for tests and files.
at::Tensor attended_keys(const NsaOutputs& outputs, const NsaConfig& config);

}  // namespace nsa

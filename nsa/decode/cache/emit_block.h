#pragma once
#include <utility>

#include "nsa/decode/cache/kv_rows.h"
#include "nsa/ops/compress/compress.h"

namespace nsa {

/// One compressed block for each of E sequences from its l source tokens (paper, Eq. 7), as
/// `compress` makes it: same sums, rounded once.
///   source [E, Hkv, l, .], oldest token first, keys rotated already iff RoPE precedes pooling;
///   block int64 [E], its number in the sequence -> {[E, Hkv, dk], [E, Hkv, dv]}.
std::pair<at::Tensor, at::Tensor> emit_block(const LoadedKv& source, const at::Tensor& block,
                                             const PhiWeights& phi_k, const PhiWeights& phi_v,
                                             const NsaConfig& config);

}  // namespace nsa

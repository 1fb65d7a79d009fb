#pragma once
#include <vector>

#include "nsa/reference/branches/attention.h"
#include "nsa/reference/config.h"

namespace nsa::reference {

/// Compressed blocks visible at t: those with i*d + l - 1 <= t, that is 0 .. N_c(t+1)-1.
std::vector<int64_t> visible_blocks(const Config& config, int64_t t);

/// Paper Eq. 8. q [B,S,Hq,dk] rotated, k_cmp [B,N_c,Hkv,dk], v_cmp [B,N_c,Hkv,dv] -> o, lse and
/// p [B,S,Hq,N_c]; scale_cmp of the configuration. A row without a visible block: o and p exactly
/// 0, lse -inf.
Attention cmp_attention(const Config& config, const Tensor<double>& q, const Tensor<double>& k_cmp,
                        const Tensor<double>& v_cmp);

AttentionGradients cmp_attention_backward(const Config& config, const Tensor<double>& q,
                                          const Tensor<double>& k_cmp, const Tensor<double>& v_cmp,
                                          const Tensor<double>& d_o);

}  // namespace nsa::reference

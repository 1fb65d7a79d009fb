#pragma once
#include <vector>

#include "nsa/reference/branches/attention.h"
#include "nsa/reference/config.h"

namespace nsa::reference {

/// Keys of the window at t: max(0, t-w+1) .. t, that is min(w, t+1) of them; none where w is 0.
std::vector<int64_t> window_keys(const Config& config, int64_t t);

/// Sliding-window attention with scale_win of the configuration. q [B,S,Hq,dk] and k_win
/// [B,S,Hkv,dk] rotated, v_win [B,S,Hkv,dv].
Attention win_attention(const Config& config, const Tensor<double>& q, const Tensor<double>& k_win,
                        const Tensor<double>& v_win);

AttentionGradients win_attention_backward(const Config& config, const Tensor<double>& q,
                                          const Tensor<double>& k_win, const Tensor<double>& v_win,
                                          const Tensor<double>& d_o);

}  // namespace nsa::reference

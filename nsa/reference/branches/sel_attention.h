#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "nsa/reference/branches/attention.h"

namespace nsa::reference {

/// Union of half-open token intervals, up to t: ascending, each token once. `ranges` is K pairs
/// (begin, end); they may overlap, be unordered, be empty or reach beyond t.
std::vector<int64_t> union_of_ranges(std::span<const int32_t> ranges, int64_t t);

/// Attention over the selected tokens. q [B,S,Hq,dk] and k_sel [B,S,Hkv,dk] rotated,
/// v_sel [B,S,Hkv,dv], ranges [B,S,Hkv,K,2]; no scale: 1 / sqrt(dk). An empty row: o exactly 0,
/// lse -inf.
Attention sel_attention(const Tensor<double>& q, const Tensor<double>& k_sel,
                        const Tensor<double>& v_sel, const Tensor<int32_t>& ranges,
                        std::optional<double> scale = {});

AttentionGradients sel_attention_backward(const Tensor<double>& q, const Tensor<double>& k_sel,
                                          const Tensor<double>& v_sel,
                                          const Tensor<int32_t>& ranges, const Tensor<double>& d_o,
                                          std::optional<double> scale = {});

}  // namespace nsa::reference

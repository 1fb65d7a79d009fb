#pragma once
#include <cstdint>
#include <vector>

#include "nsa/reference/branches/attention.h"
#include "nsa/reference/config.h"

namespace nsa::reference {

/// Size of [i, i + l/d) intersected with [j*l'/d, (j+1)*l'/d): the weight of compressed block i in
/// the score of selection block j, in strides.
int64_t overlap_weight(const Config& config, int64_t i, int64_t j);

/// Paper Eqs. 9 and 10 for one (b, t, KV head). p [G,N]: probabilities of the blocks 0 .. N-1 that
/// are visible at t. Returns `num_blocks` scores: P[i] = sum over heads, ascending, of p[h,i];
/// score[j] = sum over i, ascending, of overlap_weight(i,j) * P[i].
std::vector<double> row_scores(const Config& config, const Tensor<double>& p, int64_t num_blocks);

/// p_cmp [B,S,Hq,N_c] -> scores [B,S,Hkv,ceil(S/l')].
Tensor<double> group_scores(const Config& config, const Tensor<double>& p_cmp);

}  // namespace nsa::reference

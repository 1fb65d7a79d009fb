#pragma once
#include <ATen/core/Tensor.h>

namespace nsa {

/// Scores of blocks of tokens by an index (MSA, arXiv 2606.13392; docs/semantics.md, Selection by
/// an index): the largest q_idx.k_idx / sqrt(di) of the tokens of a block up to the query.
///   q_idx [B, S, Hkv, di], query i at position first_position + i; k_idx [B, first_position + S,
///   di]: rotated, one float type
///   -> [B, S, Hkv, ceil((first_position + S) / block_size)] of the type of sums (sum_type in
///   check.h); -inf for blocks behind the current one, NaN for a block with a NaN product.
///   Detached.
/// Products of some 64 Mi pairs exist at one time. Throws c10::Error by name.
at::Tensor index_scores(const at::Tensor& q_idx, const at::Tensor& k_idx, int64_t block_size,
                        int64_t first_position = 0);

}  // namespace nsa

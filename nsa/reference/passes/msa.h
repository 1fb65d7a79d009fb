#pragma once
#include <cstdint>

#include "nsa/reference/branches/attention.h"
#include "nsa/reference/tensor.h"

namespace nsa::reference {

/// MiniMax Sparse Attention (arXiv 2606.13392): an index chooses blocks of tokens, and attention is
/// exact over those (docs/semantics.md, Selection by an index). All inputs are rotated already.
struct MsaSizes {
  int64_t block_size = 128;  ///< tokens of a block
  int64_t top_n = 16;        ///< blocks a query and KV head, the current one included
};

/// Largest q_idx.k_idx / sqrt(di) over the tokens of each block up to the query; NaN where one is.
///   q_idx [B,S,Hkv,di], k_idx [B,S,di] -> [B,S,Hkv,ceil(S/block)], -inf for blocks behind the
///   current one.
Tensor<double> msa_scores(const MsaSizes& sizes, const Tensor<double>& q_idx,
                          const Tensor<double>& k_idx);

/// The current block, then the blocks before it by score descending, equal scores to the lower
/// index, NaN below every number -> [B,S,Hkv,n] ascending, -1 where a place is unused.
Tensor<int32_t> msa_select(const MsaSizes& sizes, const Tensor<double>& scores);

/// softmax(q.k / sqrt(dk)) v over the tokens of the chosen blocks up to the query.
///   q [B,S,Hq,dk], k [B,S,Hkv,dk], v [B,S,Hkv,dv], block_idx [B,S,Hkv,n].
Attention msa_attention(const MsaSizes& sizes, const Tensor<double>& q, const Tensor<double>& k,
                        const Tensor<double>& v, const Tensor<int32_t>& block_idx);
AttentionGradients msa_attention_backward(const MsaSizes& sizes, const Tensor<double>& q,
                                          const Tensor<double>& k, const Tensor<double>& v,
                                          const Tensor<int32_t>& block_idx,
                                          const Tensor<double>& d_o);

}  // namespace nsa::reference

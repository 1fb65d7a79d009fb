#include "nsa/reference/passes/msa.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "nsa/reference/stages/select.h"

namespace nsa::reference {
namespace {

void require_sizes(const char* op, const MsaSizes& sizes) {
  if (sizes.block_size < 1) reject(op, "block_size", ">= 1", std::to_string(sizes.block_size));
  if (sizes.top_n < 1) reject(op, "top_n", ">= 1", std::to_string(sizes.top_n));
}

int64_t num_blocks(const MsaSizes& sizes, int64_t tokens) {
  return (tokens + sizes.block_size - 1) / sizes.block_size;
}

/// Which tokens the ids of a row stand for, up to t.
AttendedKeys tokens_of_blocks(const MsaSizes& sizes, const Tensor<int32_t>& block_idx) {
  return [&sizes, &block_idx](int64_t b, int64_t t, int64_t kv_head) {
    std::vector<int64_t> tokens;
    for (const int32_t id : block_idx.row(b, t, kv_head))
      for (int64_t s = id * sizes.block_size; id >= 0 && s < (id + 1) * sizes.block_size; ++s)
        if (s <= t) tokens.push_back(s);
    return tokens;
  };
}

}  // namespace

Tensor<double> msa_scores(const MsaSizes& sizes, const Tensor<double>& q_idx,
                          const Tensor<double>& k_idx) {
  require_sizes("msa_scores", sizes);
  require_rank("msa_scores", "q_idx", q_idx, 4, "[B,S,Hkv,di]");
  const int64_t B = q_idx.size(0), S = q_idx.size(1), heads = q_idx.size(2), width = q_idx.size(3);
  require_shape("msa_scores", "k_idx", k_idx, {B, S, width});
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  Tensor<double> scores({B, S, heads, num_blocks(sizes, S)}, kNone);
  for (int64_t b = 0; b < B; ++b)
    for (int64_t t = 0; t < S; ++t)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t s = 0; s <= t; ++s) {
          double dot = 0;
          const auto q = q_idx.row(b, t, h), k = k_idx.row(b, s);
          for (size_t i = 0; i < q.size(); ++i) dot += q[i] * k[i];
          dot /= std::sqrt(static_cast<double>(width));
          double& best = scores(b, t, h, s / sizes.block_size);
          if (std::isnan(dot) || dot > best) best = dot;  // a NaN stays: nothing is larger
        }
  return scores;
}

Tensor<int32_t> msa_select(const MsaSizes& sizes, const Tensor<double>& scores) {
  require_sizes("msa_select", sizes);
  require_rank("msa_select", "scores", scores, 4, "[B,S,Hkv,ceil(S/block)]");
  Config c;
  c.num_heads = c.num_kv_heads = scores.size(2);
  c.sel_block_size = sizes.block_size;
  c.top_n = sizes.top_n;
  c.n_initial = 0;
  c.n_local = 1;
  return select(c, scores);
}

Attention msa_attention(const MsaSizes& sizes, const Tensor<double>& q, const Tensor<double>& k,
                        const Tensor<double>& v, const Tensor<int32_t>& block_idx) {
  require_sizes("msa_attention", sizes);
  return attention("msa_attention", q, k, v, tokens_of_blocks(sizes, block_idx));
}

AttentionGradients msa_attention_backward(const MsaSizes& sizes, const Tensor<double>& q,
                                          const Tensor<double>& k, const Tensor<double>& v,
                                          const Tensor<int32_t>& block_idx,
                                          const Tensor<double>& d_o) {
  require_sizes("msa_attention_backward", sizes);
  return attention_backward("msa_attention_backward", q, k, v, tokens_of_blocks(sizes, block_idx),
                            d_o);
}

}  // namespace nsa::reference

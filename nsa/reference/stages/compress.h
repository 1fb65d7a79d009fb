#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "nsa/reference/config.h"
#include "nsa/reference/tensor.h"

namespace nsa::reference {

/// Weights of one phi (keys and values have their own); D is dk for keys, dv for values.
struct PhiWeights {
  Tensor<double> conv;    ///< [D,l], tap 0 meets the oldest token; Phi::kConv only
  Tensor<double> pe;      ///< [l,D]; this and the rest: Phi::kMlp only
  Tensor<double> w1, b1;  ///< [D,l*D], [D]
  Tensor<double> w2, b2;  ///< [D,D], [D]
};

/// Tokens of one block, oldest first: l spans of D values.
using BlockTokens = std::vector<std::span<const double>>;

/// N_c: 0 if tokens < l, else floor((tokens - l) / d) + 1.
int64_t num_compressed(const Config& config, int64_t tokens);

/// ceil(tokens / l').
int64_t num_sel_blocks(const Config& config, int64_t tokens);

/// Paper Eq. 7: one block of l tokens -> one vector of D values.
std::vector<double> pool(Phi phi, const PhiWeights& weights, const BlockTokens& tokens);

/// The pooled key of `block` as attention sees it: rotated to block * d iff RoPE is kBlockStart.
void key_after_pool(const Config& config, std::span<double> pooled, int64_t block);

/// Key source [B,S,Hkv,dk], un-rotated -> compressed keys [B,N_c,Hkv,dk]; block i covers the tokens
/// [i*d, i*d+l).
Tensor<double> compress_keys(const Config& config, const Tensor<double>& k_cmp_src,
                             const PhiWeights& phi_k);

/// Value source [B,S,Hkv,dv] -> compressed values [B,N_c,Hkv,dv]; never rotated.
Tensor<double> compress_values(const Config& config, const Tensor<double>& v_cmp_src,
                               const PhiWeights& phi_v);

/// Rejects weights whose shapes do not fit phi; `suffix` is "k" or "v", as in conv_k and phi_k.w1.
void check_phi_weights(const Config& config, const PhiWeights& weights, int64_t head_dim,
                       const std::string& suffix);

}  // namespace nsa::reference

#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>

#include "nsa/config/config.h"

namespace nsa {

/// Weights of one phi (K and V have their own), shared by the KV heads; any float type, D = the
/// head dim of the source. Only what the configured phi needs has to be defined.
struct PhiWeights {
  at::Tensor conv;  ///< [D, l], tap 0 meets the oldest token          (Phi::kConv)
  at::Tensor pe;    ///< [l, D], added to the tokens of a block         (Phi::kMlp, as all below)
  at::Tensor w1;    ///< [D, l*D], over the tokens flattened token-major
  at::Tensor b1;    ///< [D]
  at::Tensor w2;    ///< [D, D]
  at::Tensor b2;    ///< [D]
};

/// Fresh weights: conv = 1/l, pe = 0, the linears as LibTorch's Linear; undefined for Phi::kMean.
PhiWeights make_phi_weights(const NsaConfig& config, int64_t dim, at::TensorOptions options = {});

/// Compressed keys and values (paper, Eq. 7): block i covers tokens [i*d, i*d + l).
///   k [B, S, Hkv, dk], v [B, S, Hkv, dv], not rotated, one float type
///   -> {k_cmp [B, N_c, Hkv, dk], v_cmp [B, N_c, Hkv, dv]}, same type, N_c = num_compressed(S).
/// RoPE per config.rope, keys only: before_pool rotates token t at position t, block_start block i
/// at position i*d. Sums in the accumulation type, one rounding at the end. A token behind the last
/// whole block has no influence. Token 0 of k stands at `first_position`, which may be below 0.
/// Differentiable in k, v, weights. Throws c10::Error by name.
std::pair<at::Tensor, at::Tensor> compress(const at::Tensor& k, const at::Tensor& v,
                                           const PhiWeights& phi_k, const PhiWeights& phi_v,
                                           const NsaConfig& config, int64_t first_position = 0);

struct PackedCompressed {
  at::Tensor k_cmp;   ///< [sum of N_c(len), Hkv, dk]
  at::Tensor v_cmp;   ///< [sum of N_c(len), Hkv, dv]
  at::Tensor cu_cmp;  ///< int32 [docs + 1], cumulative sum of N_c(len)
};
/// The same for packed documents: k [T, Hkv, dk], v [T, Hkv, dv], cu_seqlens int32 [docs + 1] that
/// starts at 0, never falls and ends at T. Positions and blocks restart at 0 in each document.
PackedCompressed compress_packed(const at::Tensor& k, const at::Tensor& v,
                                 const at::Tensor& cu_seqlens, const PhiWeights& phi_k,
                                 const PhiWeights& phi_v, const NsaConfig& config);

/// What compress runs for the keys: "fused" (the mean in one kernel each way) or "plain".
const char* compress_backend(const at::Tensor& k, const NsaConfig& config);

}  // namespace nsa

#pragma once
#include "nsa/layer/nsa_attention.h"

namespace nsa {

/// What the caches and a step take rotated; everything else is used as it is given.
struct RotatedTokens {
  at::Tensor q;          ///< [A, S, Hq, dk]
  at::Tensor k_sel;      ///< [A, S, Hkv, dk]
  at::Tensor k_win;      ///< [A, S, Hkv, dk]
  at::Tensor k_cmp_src;  ///< [A, S, Hkv, dk], rotated iff RoPE precedes pooling
};

/// Rotates tokens that stand at `positions`, int64 [S] or [A, S].
RotatedTokens rotate_tokens(const NsaInputs& tokens, const at::Tensor& positions,
                            const NsaConfig& config);

}  // namespace nsa

#pragma once
#include <ATen/core/Tensor.h>

namespace nsa {

/// Next-token cross-entropy, computed in fp32 (fp64 for fp64 logits).
///   loss = -1/(B*S) sum over b, t of log softmax(logits[b,t])[tokens[b,t+1]]
/// logits [B, S, V], any float type, from tokens[:, 0..S-1]; tokens [B, S+1] int64: position t
/// predicts token t+1. Returns a scalar in nat. Throws c10::Error naming the argument when shapes
/// or types do not fit.
at::Tensor next_token_loss(const at::Tensor& logits, const at::Tensor& tokens);

/// The same without the targets where `ignored` (bool [B, S]) holds: the mean over the others; 0,
/// with gradients of 0, without any. Undefined: none is left out.
at::Tensor masked_next_token_loss(const at::Tensor& logits, const at::Tensor& tokens,
                                  const at::Tensor& ignored);

}  // namespace nsa

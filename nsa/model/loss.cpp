#include "nsa/model/loss.h"

#include <ATen/ops/cross_entropy_loss.h>

namespace nsa {

at::Tensor next_token_loss(const at::Tensor& logits, const at::Tensor& tokens) {
  TORCH_CHECK(logits.dim() == 3, "nsa::next_token_loss: logits must be [B, S, V], got ",
              logits.sizes());
  TORCH_CHECK(
      tokens.dim() == 2 && tokens.size(0) == logits.size(0) && tokens.size(1) == logits.size(1) + 1,
      "nsa::next_token_loss: tokens must be [", logits.size(0), ", ", logits.size(1) + 1, "], got ",
      tokens.sizes());
  TORCH_CHECK(tokens.scalar_type() == at::kLong, "nsa::next_token_loss: tokens must be int64, got ",
              tokens.scalar_type());
  TORCH_CHECK(logits.size(0) * logits.size(1) > 0,
              "nsa::next_token_loss: logits must hold at least one position, got ", logits.sizes());
  const auto accumulation = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor targets = tokens.slice(1, 1).reshape({-1});
  return at::cross_entropy_loss(logits.flatten(0, 1).to(accumulation), targets);
}

}  // namespace nsa

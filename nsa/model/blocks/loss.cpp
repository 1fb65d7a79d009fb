#include "nsa/model/blocks/loss.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/masked_fill.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/sum.h>

namespace nsa {
namespace {

constexpr int64_t kIgnored = -100;  ///< target that no token is

}  // namespace

at::Tensor masked_next_token_loss(const at::Tensor& logits, const at::Tensor& tokens,
                                  const at::Tensor& ignored) {
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
  const at::Tensor rows = logits.flatten(0, 1).to(accumulation);
  at::Tensor targets = tokens.slice(1, 1);
  if (ignored.defined()) targets = targets.masked_fill(ignored, kIgnored);
  targets = targets.reshape({-1});
  if (!ignored.defined()) return at::cross_entropy_loss(rows, targets);
  const at::Tensor sum =
      at::cross_entropy_loss(rows, targets, /*weight=*/{}, at::Reduction::Sum, kIgnored);
  return sum / targets.ne(kIgnored).sum().clamp_min(1);
}

at::Tensor next_token_loss(const at::Tensor& logits, const at::Tensor& tokens) {
  return masked_next_token_loss(logits, tokens, {});
}

}  // namespace nsa

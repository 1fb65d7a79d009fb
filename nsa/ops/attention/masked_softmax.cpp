#include "nsa/ops/attention/masked_softmax.h"

#include <ATen/ATen.h>

namespace nsa {

MaskedSoftmax masked_softmax_(at::Tensor logits, const at::Tensor& forbidden) {
  const at::Tensor empty = forbidden.all(-1, /*keepdim=*/true);
  const at::Tensor peak = logits.amax(-1, /*keepdim=*/true).masked_fill_(empty, 0.0);
  at::Tensor weights = logits.sub_(peak).exp_();
  at::Tensor denominator = weights.sum(-1, /*keepdim=*/true);
  at::Tensor lse = denominator.log().add_(peak);
  return {weights, denominator.masked_fill_(empty, 1.0), lse};
}

at::Tensor probabilities(const MaskedSoftmax& softmax, const at::Tensor& forbidden) {
  return softmax.weights.div(softmax.denominator).masked_fill_(forbidden, 0.0);
}

at::Tensor logit_gradients(const at::Tensor& d_probs, const at::Tensor& probs,
                           const at::Tensor& d_lse, const at::Tensor& forbidden) {
  at::Tensor result = at::_softmax_backward_data(d_probs, probs, -1, probs.scalar_type());
  if (d_lse.defined()) result.addcmul_(probs, d_lse.to(probs.scalar_type()));
  return result.masked_fill_(forbidden, 0.0);
}

}  // namespace nsa

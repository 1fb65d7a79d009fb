#pragma once
#include <ATen/core/Tensor.h>

namespace nsa {

struct MaskedSoftmax {
  at::Tensor weights;      ///< exp(logit - largest), not divided
  at::Tensor denominator;  ///< [.., 1]; 1 for an empty row
  at::Tensor lse;          ///< [.., 1]; -inf for an empty row
};

/// The probabilities themselves, 0 where forbidden. Dividing by the sum is more accurate than
/// exp(logit - lse), whose argument carries the rounding of lse; backward passes use it.
at::Tensor probabilities(const MaskedSoftmax& softmax, const at::Tensor& forbidden);

/// Softmax over the last axis (>= 1 long), in place: logits hold -inf where `forbidden`, which
/// broadcasts to them. A row with nothing allowed has weights 0.
MaskedSoftmax masked_softmax_(at::Tensor logits, const at::Tensor& forbidden);

/// Gradients of logits [..., n] from those of probabilities, which are 0 where forbidden, and of
/// lse ([..., 1] or undefined); 0 where forbidden. The sum over a row is of the probabilities, not
/// of d_out * out: out was rounded to the input type, and where one key dominates the difference
/// cancels everything but that rounding.
at::Tensor logit_gradients(const at::Tensor& d_probs, const at::Tensor& probs,
                           const at::Tensor& d_lse, const at::Tensor& forbidden);

}  // namespace nsa

#pragma once
#include <functional>

#include "nsa/layer/nsa_attention.h"

namespace nsa {

/// True where a call on these inputs will be differentiated.
bool needs_gradient(const NsaInputs& inputs);

/// Inputs that are taken in pieces, step by step. Under autograd what the steps send back is added
/// up in the next wider type and rounded once, as a batched call does.
class StepInputs {
 public:
  explicit StepInputs(const NsaInputs& inputs);

  /// `rows` of every tensor with one row a token, and the weights; in the types they came in.
  NsaInputs take(const std::function<at::Tensor(const at::Tensor&)>& rows) const;

 private:
  NsaInputs given_, wide_;
};

}  // namespace nsa

#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

namespace nsa {

/// While it lives, products of this thread keep for their backward pass the weights themselves
/// instead of rounded or joined copies, and make the copies again there: for weights whose storage
/// is freed between the passes and filled with the same values again.
class TransientWeights {
 public:
  TransientWeights();
  ~TransientWeights();
  TransientWeights(const TransientWeights&) = delete;
  TransientWeights& operator=(const TransientWeights&) = delete;

  /// Whether one lives in this thread.
  static bool here();

 private:
  bool outer_;
};

/// What a backward pass is to keep of `rows` = rounded_rows(weights, its type): rows, or the
/// weights where they are transient. rounded_rows() of the result gives the rows again.
std::vector<at::Tensor> kept_rows(const at::Tensor& rows, at::TensorList weights);

}  // namespace nsa

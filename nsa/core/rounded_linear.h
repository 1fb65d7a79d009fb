#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <unordered_map>
#include <vector>

namespace nsa {

/// Matrices of one module in the narrower type it computes in, made in one pass. While it lives,
/// rounded_linear finds them in the thread that made it. The matrices must not change meanwhile.
class RoundedWeights {
 public:
  /// Of `weights` the contiguous matrices of one type on one device are taken, in their order.
  RoundedWeights(const std::vector<at::Tensor>& weights, at::ScalarType type);
  ~RoundedWeights();
  RoundedWeights(const RoundedWeights&) = delete;
  RoundedWeights& operator=(const RoundedWeights&) = delete;

  /// Rows of `weights`, one below the other: a view where they lie so; undefined elsewhere.
  at::Tensor rows(const std::vector<at::Tensor>& weights, at::ScalarType type) const;

 private:
  at::Tensor flat_;
  std::unordered_map<const void*, int64_t> offsets_;  ///< by tensor, elements
  const RoundedWeights* outer_;
};

/// The rows of several matrices, one below the other, in `type`; outside of autograd.
at::Tensor rounded_rows(const std::vector<at::Tensor>& weights, at::ScalarType type);

/// Whether rounded_linear keeps the gradient of these weights wide.
bool keeps_gradients_wide(const at::Tensor& x, const std::vector<at::Tensor>& weights);

/// Computes a tensor once more, with the same bits, from what is kept anyway.
using Recipe = std::function<at::Tensor()>;

/// x W^T for the rows of several matrices, one below the other, rounded to the type of x: x
/// [..., in], weights [out_i, in] of a type of their own -> [..., sum of out_i]. On CUDA with bf16
/// or fp16 x and fp32 weights the gradient of the weights is summed in fp32 and not rounded in
/// between, and where there is a recipe for x it is not kept; elsewhere the gradient has been
/// rounded to the type of x.
at::Tensor rounded_linear(const at::Tensor& x, const std::vector<at::Tensor>& weights,
                          const Recipe& again = {});

}  // namespace nsa

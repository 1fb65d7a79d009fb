#pragma once
#include <ATen/core/Tensor.h>

#include <unordered_map>
#include <vector>

namespace nsa {

/// Matrices of one module in the narrower type it computes in, made in one pass. While it lives,
/// rounded_linear and its like find them in the thread that made it. The matrices must not change
/// meanwhile.
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

}  // namespace nsa

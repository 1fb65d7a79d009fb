#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

#include "nsa/layer/nsa_attention.h"
#include "suites/conformance/case_config.h"
#include "suites/conformance/dense_formulation.h"

namespace suites {

/// Calls of the operator on the kernels at one size, in bf16 on drawn inputs: q, one K, one V for
/// all branches, gate logits, all of them differentiable.
class TargetCall {
 public:
  TargetCall() = default;
  TargetCall(const CaseConfig& config, at::Device device, uint64_t seed);

  nsa::NsaOutputs forward() const;
  /// Gradients of the leaves; the graph of `o` stays.
  std::vector<at::Tensor> backward(const at::Tensor& o, const at::Tensor& d_o) const;

  const DenseInputs& inputs() const { return in_; }
  /// q, K, V, gate logits.
  const std::vector<at::Tensor>& leaves() const { return leaves_; }

 private:
  CaseConfig config_;
  DenseInputs in_;
  std::vector<at::Tensor> leaves_;
};

}  // namespace suites

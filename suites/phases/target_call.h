#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

#include "nsa/layer/nsa_attention.h"
#include "suites/conformance/case_config.h"
#include "suites/conformance/dense_formulation.h"

namespace suites {

/// Options with which every branch asks for the CUDA kernels, or for those of the CPU, without
/// scores.
nsa::NsaOptions cuda_kernels();
nsa::NsaOptions cpu_kernels();

/// Calls of the operator at one size on drawn inputs, by the CUDA kernels in bf16 unless something
/// else is given: q, one K, one V for all branches, gate logits, all of them differentiable.
class TargetCall {
 public:
  TargetCall() = default;
  TargetCall(const CaseConfig& config, at::Device device, uint64_t seed,
             at::ScalarType type = at::kBFloat16, const nsa::NsaOptions& options = cuda_kernels());

  nsa::NsaOutputs forward() const;
  /// As a model calls it: of the branches only what the backward pass reads is kept.
  nsa::NsaOutputs forward_in_training() const;
  /// Gradients of the leaves. `keeps_graph`: the graph of `o` can be asked again.
  std::vector<at::Tensor> backward(const at::Tensor& o, const at::Tensor& d_o,
                                   bool keeps_graph = true) const;

  const DenseInputs& inputs() const { return in_; }
  /// q, K, V, gate logits.
  const std::vector<at::Tensor>& leaves() const { return leaves_; }

 private:
  CaseConfig config_;
  nsa::NsaOptions options_;
  DenseInputs in_;
  std::vector<at::Tensor> leaves_;
};

}  // namespace suites

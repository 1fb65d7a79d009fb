#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "nsa/config/config.h"
#include "nsa/layer/nsa_attention.h"
#include "nsa/reference/inputs.h"
#include "suites/conformance/case_config.h"
#include "suites/conformance/dense_formulation.h"

/// Conversion of a case between its three forms: the oracle's plain arrays, the second formulation
/// and nsa/.
namespace suites {

nsa::reference::Config to_reference(const CaseConfig& config);
nsa::NsaConfig to_nsa(const CaseConfig& config);

/// Copies; undefined stays undefined.
nsa::reference::Tensor<double> to_reference(const at::Tensor& x);
nsa::reference::Tensor<int32_t> to_reference_ids(const at::Tensor& x);
at::Tensor from_reference(const nsa::reference::Tensor<double>& x);
at::Tensor from_reference(const nsa::reference::Tensor<int32_t>& x);

nsa::reference::Inputs to_reference(const DenseInputs& inputs);
/// Defined members as tensors, in the order of named_inputs (case_inputs.h).
std::vector<at::Tensor> in_named_order(const nsa::reference::Inputs& inputs);

nsa::NsaInputs to_nsa(const DenseInputs& inputs);

}  // namespace suites

#pragma once
#include <string>

#include "suites/conformance/dense_formulation.h"

/// Dense causal attention by the library on the same tensors, for comparison.
namespace suites {

enum class DenseLibrary { kCudnn, kFlash };

/// One forward; differentiable in q, k_sel, v_sel of `in`. Flash needs dk = dv, so narrower values
/// are padded with zeros inside. Throws c10::Error where the library refuses.
at::Tensor dense_causal(const DenseInputs& in, DenseLibrary library);

std::string to_string(DenseLibrary library);

}  // namespace suites

#pragma once
#include <ATen/core/Tensor.h>

#include "nsa/core/rounded_linear.h"

namespace nsa {

/// SwiGLU: W_down (SiLU(W_gate x) * W_up x). x [..., D]; w_gate_up [2*H, D] holds W_gate above
/// W_up; w_down [D, H]. Weights are rounded to the type of x. `again`: x once more
/// (nsa/core/rounded_linear.h).
at::Tensor swiglu(const at::Tensor& x, const at::Tensor& w_gate_up, const at::Tensor& w_down,
                  const Recipe& again = {});

/// SiLU(gate) * up of gate_up [..., 2*H], gate before up; [..., H]. One launch each way in 16 bits
/// on CUDA where H is a multiple of 8, then differentiable once and rounded once; composed of ATen
/// operators elsewhere. Throws c10::Error for an odd last size.
at::Tensor silu_product(const at::Tensor& gate_up);

}  // namespace nsa

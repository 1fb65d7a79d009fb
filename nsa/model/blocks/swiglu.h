#pragma once
#include <ATen/core/Tensor.h>

namespace nsa {

/// SwiGLU: W_down (SiLU(W_gate x) * W_up x), from gate_up [..., 2*H], which are W_gate x and behind
/// it W_up x; w_down [D, H], rounded to the type of gate_up. In 16 bits on CUDA the product is not
/// kept but computed again.
at::Tensor swiglu(const at::Tensor& gate_up, const at::Tensor& w_down);

/// SiLU(gate) * up of gate_up [..., 2*H], gate before up; [..., H]. One launch each way in 16 bits
/// on CUDA where H is a multiple of 8, then differentiable once and rounded once; composed of ATen
/// operators elsewhere. Throws c10::Error for an odd last size.
at::Tensor silu_product(const at::Tensor& gate_up);

}  // namespace nsa

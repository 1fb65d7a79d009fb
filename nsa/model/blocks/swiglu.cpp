#include "nsa/model/blocks/swiglu.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "nsa/backend/kernel_code.h"
#include "nsa/ops/common/kernel_problem.h"
#include "nsa/ops/linear/rounded_linear.h"
#include "nsa/ops/linear/transient_weights.h"

#ifdef NSA_WITH_CUDA
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "nsa/kernels/tokens/token_kernels.h"
#endif

namespace nsa {
namespace {

#ifdef NSA_WITH_CUDA
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

kernels::Swiglu problem_of(const at::Tensor& gate_up) {
  kernels::Swiglu p;
  p.gate_up = gate_up.const_data_ptr();
  p.hidden = static_cast<int>(gate_up.size(-1) / 2);
  p.rows = gate_up.numel() / gate_up.size(-1);
  p.element = element_of(gate_up);
  return p;
}

at::Tensor product_of(const at::Tensor& gate_up) {
  const c10::cuda::CUDAGuard guard(gate_up.device());
  std::vector<int64_t> sizes = gate_up.sizes().vec();
  sizes.back() /= 2;
  const at::Tensor out = at::empty(sizes, gate_up.options());
  kernels::Swiglu p = problem_of(gate_up);
  p.out = out.mutable_data_ptr();
  check_launch(kernels::swiglu_forward(p, c10::cuda::getCurrentCUDAStream(gate_up.get_device())),
               "silu_product");
  return out;
}

struct FusedSiluProduct : torch::autograd::Function<FusedSiluProduct> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate_up_in) {
    const at::Tensor gate_up = gate_up_in.contiguous();
    ctx->save_for_backward({gate_up});
    return product_of(gate_up);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "nsa::silu_product: double backward is not supported; detach the gradient first");
    const at::Tensor gate_up = ctx->get_saved_variables()[0], d_out = grads[0].contiguous();
    const c10::cuda::CUDAGuard guard(gate_up.device());
    const at::Tensor d_gate_up = at::empty_like(gate_up);
    kernels::Swiglu p = problem_of(gate_up);
    p.d_out = d_out.const_data_ptr();
    p.d_gate_up = d_gate_up.mutable_data_ptr();
    check_launch(kernels::swiglu_backward(p, c10::cuda::getCurrentCUDAStream(gate_up.get_device())),
                 "silu_product");
    return {d_gate_up};
  }
};

/// silu(gate) * up times w_down, of which the product is not kept but computed again: with the
/// hidden layer's width it is the second largest of a layer's tensors.
struct FusedDown : torch::autograd::Function<FusedDown> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate_up_in,
                            const at::Tensor& w_down) {
    const at::Tensor gate_up = gate_up_in.contiguous();
    const at::Tensor rounded = rounded_rows({w_down}, gate_up.scalar_type());
    ctx->save_for_backward({gate_up, kept_rows(rounded, w_down).front()});
    return at::linear(product_of(gate_up), rounded);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "nsa::swiglu: double backward is not supported; detach the gradient first");
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& gate_up = saved[0];
    const at::Tensor rounded = rounded_rows({saved[1]}, gate_up.scalar_type());
    const c10::cuda::CUDAGuard guard(gate_up.device());
    const at::Tensor d_out = grads[0].reshape({-1, rounded.size(0)});
    // The gradient of the product, then the product.
    const at::Tensor product = at::mm(d_out, rounded);
    const at::Tensor d_gate_up = at::empty_like(gate_up);
    kernels::Swiglu p = problem_of(gate_up);
    p.d_out = product.const_data_ptr();
    p.out = product.mutable_data_ptr();
    p.d_gate_up = d_gate_up.mutable_data_ptr();
    check_launch(kernels::swiglu_backward(p, c10::cuda::getCurrentCUDAStream(gate_up.get_device())),
                 "silu_product");
    return {d_gate_up, at::mm(d_out.t(), product, at::kFloat)};
  }
};

bool has_kernel(const at::Tensor& gate_up) {
  return gate_up.size(-1) > 0 && gate_up.size(-1) % 16 == 0 && token_kernels_run(gate_up);
}
#endif

}  // namespace

at::Tensor silu_product(const at::Tensor& gate_up) {
  TORCH_CHECK(gate_up.dim() >= 1 && gate_up.size(-1) % 2 == 0,
              "nsa::silu_product: last size of gate_up must be even, got shape ", gate_up.sizes());
#ifdef NSA_WITH_CUDA
  if (has_kernel(gate_up)) return FusedSiluProduct::apply(gate_up);
#endif
  const std::vector<at::Tensor> parts = gate_up.chunk(2, -1);
  return at::silu(parts[0]) * parts[1];
}

at::Tensor swiglu(const at::Tensor& gate_up, const at::Tensor& w_down) {
#ifdef NSA_WITH_CUDA
  if (has_kernel(gate_up) && keeps_gradients_wide(gate_up, {w_down}))
    return FusedDown::apply(gate_up, w_down);
#endif
  return rounded_linear(silu_product(gate_up), {w_down});
}

}  // namespace nsa

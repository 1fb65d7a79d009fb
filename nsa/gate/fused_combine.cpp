#include "nsa/gate/fused_combine.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "nsa/core/device_problem.h"

#ifdef NSA_WITH_CUDA
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "nsa/device/token_kernels.h"
#endif

namespace nsa {

#ifdef NSA_WITH_CUDA
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Contiguous tensors of one call; the gates in fp32.
device::Combine problem_of(const variable_list& branches, const at::Tensor& gates) {
  device::Combine p;
  for (int i = 0; i < 3; ++i) p.branch[i] = branches[static_cast<size_t>(i)].const_data_ptr();
  const at::Tensor& o = branches[0];
  p.gates = gates.const_data_ptr<float>();
  p.head_dim = static_cast<int>(o.size(-1));
  p.rows = o.numel() / o.size(-1);
  p.heads_per_gate = static_cast<int>(o.size(-2) / gates.size(-2));
  p.element = element_of(o);
  return p;
}

void check_launch(cudaError_t status) {
  TORCH_CHECK(status == cudaSuccess,
              "nsa::gate_combine: launch failed: ", cudaGetErrorString(status));
}

struct FusedCombine : torch::autograd::Function<FusedCombine> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& o_cmp, const at::Tensor& o_sel,
                            const at::Tensor& o_win, const at::Tensor& gates) {
    const c10::cuda::CUDAGuard guard(o_cmp.device());
    const variable_list branches{o_cmp.contiguous(), o_sel.contiguous(), o_win.contiguous()};
    const at::Tensor g = gates.contiguous();
    ctx->save_for_backward({branches[0], branches[1], branches[2], g});
    const at::Tensor out = at::empty(o_cmp.sizes(), o_cmp.options());
    if (out.numel() == 0) return out;
    device::Combine p = problem_of(branches, g);
    p.out = out.mutable_data_ptr();
    check_launch(device::combine_forward(p, c10::cuda::getCurrentCUDAStream(o_cmp.get_device())));
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "nsa::gate_combine: double backward is not supported; detach the gradient first");
    const variable_list saved = ctx->get_saved_variables();
    const c10::cuda::CUDAGuard guard(saved[0].device());
    variable_list d;
    for (size_t i = 0; i < 3; ++i) d.push_back(at::empty(saved[i].sizes(), saved[i].options()));
    d.push_back(at::empty(saved[3].sizes(), saved[3].options()));
    if (saved[0].numel() == 0) return {d[0], d[1], d[2], d[3].zero_()};
    const at::Tensor d_out = grads[0].contiguous();
    device::Combine p = problem_of({saved[0], saved[1], saved[2]}, saved[3]);
    p.d_out = d_out.const_data_ptr();
    for (size_t i = 0; i < 3; ++i) p.d_branch[i] = d[i].mutable_data_ptr();
    p.d_gates = d[3].mutable_data_ptr<float>();
    check_launch(
        device::combine_backward(p, c10::cuda::getCurrentCUDAStream(saved[0].get_device())));
    return d;
  }
};

}  // namespace

bool combines_by_kernel(const at::Tensor& o_cmp, const at::Tensor& gates) {
  constexpr int kLeastMajor = 8;
  return o_cmp.is_cuda() && o_cmp.size(-1) % 8 == 0 && o_cmp.size(-1) > 0 &&
         gates.scalar_type() == at::kFloat && o_cmp.numel() / 8 / 128 <= INT32_MAX &&
         kernel_obstacle(o_cmp, kLeastMajor, /*only=*/false).empty();
}

at::Tensor combine_by_kernel(const at::Tensor& o_cmp, const at::Tensor& o_sel,
                             const at::Tensor& o_win, const at::Tensor& gates) {
  return FusedCombine::apply(o_cmp, o_sel, o_win, gates);
}
#else
bool combines_by_kernel(const at::Tensor&, const at::Tensor&) { return false; }

at::Tensor combine_by_kernel(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                             const at::Tensor&) {
  TORCH_CHECK(false, "nsa::gate_combine: this build has no CUDA code");
}
#endif

}  // namespace nsa

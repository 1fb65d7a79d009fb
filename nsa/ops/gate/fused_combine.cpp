#include "nsa/ops/gate/fused_combine.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "nsa/backend/kernel_code.h"
#include "nsa/ops/common/kernel_problem.h"

#ifdef NSA_WITH_CUDA
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "nsa/kernels/tokens/token_kernels.h"
#endif

namespace nsa {

#ifdef NSA_WITH_CUDA
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

kernels::Activation activation_of(GateActivation activation) {
  switch (activation) {
    case GateActivation::kSoftmax:
      return kernels::Activation::kSoftmax;
    case GateActivation::kSigmoid:
      return kernels::Activation::kSigmoid;
    case GateActivation::kNone:
      return kernels::Activation::kNone;
  }
  TORCH_INTERNAL_ASSERT(false, "activation without a kernel");
}

/// Tensors of one call; they must outlive the launch.
kernels::Combine problem_of(const GatedSum& sum) {
  kernels::Combine p;
  for (size_t i = 0; i < 3; ++i) p.branch[i] = sum.branch[i].const_data_ptr();
  const at::Tensor& o = sum.branch[0];
  p.logits = sum.logits.const_data_ptr();
  p.float_logits = sum.logits.scalar_type() == at::kFloat;
  p.activation = activation_of(sum.activation);
  p.keeps_two = sum.keeps_two;
  p.head_dim = static_cast<int>(o.size(-1));
  p.rows = o.numel() / o.size(-1);
  p.heads_per_gate = static_cast<int>(o.size(-2) / sum.logits.size(-2));
  p.element = element_of(o);
  return p;
}

void launch_backward(kernels::Combine& p, const at::Tensor& d_o, const at::Tensor& d_logits) {
  p.d_out = d_o.const_data_ptr();
  p.d_logits = d_logits.mutable_data_ptr();
  check_launch(kernels::combine_backward(p, c10::cuda::getCurrentCUDAStream(d_o.get_device())),
               "gate_combine");
}

at::Tensor like(const at::Tensor& x) { return at::empty(x.sizes(), x.options()); }

struct FusedCombine : torch::autograd::Function<FusedCombine> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& o_cmp, const at::Tensor& o_sel,
                            const at::Tensor& o_win, const at::Tensor& gates) {
    const GatedSum sum{{o_cmp.contiguous(), o_sel.contiguous(), o_win.contiguous()},
                       gates.contiguous(),
                       GateActivation::kNone};
    ctx->save_for_backward({sum.branch[0], sum.branch[1], sum.branch[2], sum.logits});
    return gated_sum_by_kernel(sum).o;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "nsa::gate_combine: double backward is not supported; detach the gradient first");
    const variable_list saved = ctx->get_saved_variables();
    const GatedGradients d = gated_sum_backward(
        {{saved[0], saved[1], saved[2]}, saved[3], GateActivation::kNone}, grads[0]);
    return {d.branch[0], d.branch[1], d.branch[2], d.logits};
  }
};

}  // namespace

bool combines_by_kernel(const at::Tensor& o, const at::Tensor& gates) {
  return o.is_cuda() && o.size(-1) % 8 == 0 && o.size(-1) > 0 &&
         (gates.scalar_type() == at::kFloat || gates.scalar_type() == o.scalar_type()) &&
         o.numel() / o.size(-1) <= kernels::kMostCombined && token_kernels_run(o);
}

GatedOutput gated_sum_by_kernel(const GatedSum& sum) {
  const c10::cuda::CUDAGuard guard(sum.logits.device());
  const GatedOutput out{sum.keeps_two ? sum.branch[1] : like(sum.branch[0]),
                        at::empty(sum.logits.sizes(), sum.logits.options().dtype(at::kFloat))};
  if (out.o.numel() == 0) return out;
  kernels::Combine p = problem_of(sum);
  if (sum.keeps_two) {
    TORCH_INTERNAL_ASSERT(sum.lse_cmp.is_contiguous() && sum.lse_cmp.numel() == p.rows);
    p.lse_cmp = sum.lse_cmp.const_data_ptr<float>();
  }
  p.out = out.o.mutable_data_ptr();
  p.gates = out.gates.mutable_data_ptr<float>();
  check_launch(kernels::combine_forward(p, c10::cuda::getCurrentCUDAStream(out.o.get_device())),
               "gate_combine");
  return out;
}

GatedGradients gated_sum_backward(const GatedSum& sum, const at::Tensor& d_o) {
  const c10::cuda::CUDAGuard guard(sum.logits.device());
  const at::Tensor d_out = d_o.contiguous();
  const GatedGradients d{like(sum.logits),
                         {like(sum.branch[0]), like(sum.branch[1]), like(sum.branch[2])}};
  if (d_out.numel() == 0) return {d.logits.zero_(), d.branch};
  kernels::Combine p = problem_of(sum);
  for (size_t i = 0; i < 3; ++i) p.d_branch[i] = d.branch[i].mutable_data_ptr();
  launch_backward(p, d_out, d.logits);
  return d;
}

at::Tensor gated_sum_statistics(const GatedSum& sum, const at::Tensor& d_o, int64_t num_kv_heads,
                                const std::array<kernels::GatedRows, 3>& rows, int* flags) {
  const c10::cuda::CUDAGuard guard(sum.logits.device());
  const at::Tensor d_out = d_o.contiguous(), d_logits = like(sum.logits);
  kernels::Combine p = problem_of(sum);
  for (size_t i = 0; i < 3; ++i) p.gated[i] = rows[i];
  p.flags = flags;
  p.num_tokens = static_cast<int>(d_out.size(1));
  p.num_heads = static_cast<int>(d_out.size(2));
  p.num_kv_heads = static_cast<int>(num_kv_heads);
  launch_backward(p, d_out, d_logits);
  return d_logits;
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

GatedOutput gated_sum_by_kernel(const GatedSum&) {
  TORCH_CHECK(false, "nsa::gate_combine: this build has no CUDA code");
}
#endif

}  // namespace nsa

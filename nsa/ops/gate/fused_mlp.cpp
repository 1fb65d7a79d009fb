#include "nsa/ops/gate/fused_mlp.h"

#include <ATen/ATen.h>

#include "nsa/backend/card_facts.h"
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

bool heads_lie_together(const at::Tensor& x) {
  return x.stride(2) == 1 && (x.size(1) == 1 || x.stride(1) == x.size(2)) &&
         (x.size(0) == 1 || x.stride(0) % 8 == 0) &&
         reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
}

/// The kernels read the weights as they are: contiguous fp32.
bool takes(const at::Tensor& q, const GateWeights& weights) {
  const auto plain = [](const at::Tensor& weight) {
    return weight.is_cuda() && weight.scalar_type() == at::kFloat && weight.is_contiguous();
  };
  constexpr int64_t kMostRows = INT32_MAX / 2;
  return q.is_cuda() && q.dim() == 3 && q.numel() > 0 && q.size(2) % 8 == 0 &&
         q.size(0) * q.size(1) < kMostRows && q.size(2) <= kernels::kMostGateDim &&
         kernels::gate_mlp_shared_bytes(static_cast<int>(q.size(2))) <=
             card_facts(q.device()).shared_bytes &&
         heads_lie_together(q) && plain(weights.w1) && plain(weights.b1) && plain(weights.w2) &&
         plain(weights.b2) && weights.w1.size(0) == q.size(2) / 2;
}

kernels::GateMlp problem_of(const at::Tensor& q, const GateWeights& weights, int64_t num_kv_heads) {
  TORCH_INTERNAL_ASSERT(takes(q, weights));
  kernels::GateMlp p;
  p.q = q.const_data_ptr();
  p.q_stride = q.size(0) == 1 ? q.size(1) * q.size(2) : q.stride(0);
  p.w1 = weights.w1.const_data_ptr<float>();
  p.b1 = weights.b1.const_data_ptr<float>();
  p.w2 = weights.w2.const_data_ptr<float>();
  p.b2 = weights.b2.const_data_ptr<float>();
  p.rows = q.size(0);
  p.num_heads = static_cast<int>(q.size(1));
  p.num_kv_heads = static_cast<int>(num_kv_heads);
  p.head_dim = static_cast<int>(q.size(2));
  p.element = element_of(q);
  return p;
}

}  // namespace

bool gates_by_kernel(const at::Tensor& q, const GateWeights& weights) {
  return takes(q, weights) && token_kernels_run(q);
}

at::Tensor gate_mlp_by_kernel(const at::Tensor& q, const GateWeights& weights,
                              int64_t num_kv_heads) {
  const c10::cuda::CUDAGuard guard(q.device());
  kernels::GateMlp p = problem_of(q, weights, num_kv_heads);
  const at::Tensor logits = at::empty({q.size(0), num_kv_heads, 3}, q.options().dtype(at::kFloat));
  p.logits = logits.mutable_data_ptr<float>();
  check_launch(kernels::gate_mlp_forward(p, c10::cuda::getCurrentCUDAStream(q.get_device())),
               "gate_mlp");
  return logits;
}

GateWeights gate_mlp_backward_by_kernel(const at::Tensor& q, const GateWeights& weights,
                                        const at::Tensor& d_logits, const at::Tensor& d_q) {
  TORCH_INTERNAL_ASSERT(d_q.sizes() == q.sizes() && heads_lie_together(d_q));
  const c10::cuda::CUDAGuard guard(q.device());
  const int64_t kv = d_logits.size(1);
  kernels::GateMlp p = problem_of(q, weights, kv);
  const at::Tensor upstream = d_logits.to(at::kFloat).contiguous();
  const at::Tensor parts = at::empty(
      {kernels::gate_mlp_parts(p.rows, p.num_kv_heads), kernels::gate_mlp_weights(p.head_dim)},
      upstream.options());
  p.d_logits = upstream.const_data_ptr<float>();
  p.d_q = d_q.mutable_data_ptr();
  p.d_q_stride = d_q.size(0) == 1 ? p.q_stride : d_q.stride(0);
  p.d_weights = parts.mutable_data_ptr<float>();
  check_launch(kernels::gate_mlp_backward(p, c10::cuda::getCurrentCUDAStream(q.get_device())),
               "gate_mlp");
  const std::vector<at::Tensor> d = summed_parts(parts).split_with_sizes(
      {weights.w1.numel(), weights.b1.numel(), weights.w2.numel(), weights.b2.numel()});
  return {d[0].view_as(weights.w1), d[1], d[2].view_as(weights.w2), d[3]};
}
#else
bool gates_by_kernel(const at::Tensor&, const GateWeights&) { return false; }

at::Tensor gate_mlp_by_kernel(const at::Tensor&, const GateWeights&, int64_t) {
  TORCH_CHECK(false, "nsa::gate_mlp: this build has no CUDA code");
}

GateWeights gate_mlp_backward_by_kernel(const at::Tensor&, const GateWeights&, const at::Tensor&,
                                        const at::Tensor&) {
  TORCH_CHECK(false, "nsa::gate_mlp: this build has no CUDA code");
}
#endif

}  // namespace nsa

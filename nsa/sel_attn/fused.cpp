// The project's CUDA kernel: one block of threads a (token, KV head), straight from the ranges; no
// plan, no gathered copies, no host synchronisation. Its backward pass is that of `gather`.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "nsa/core/device_problem.h"
#include "nsa/core/nvtx_range.h"
#include "nsa/sel_attn/backends.h"

#ifdef NSA_WITH_CUDA
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "nsa/device/row_attention.h"
#endif

namespace nsa {

#ifdef NSA_WITH_CUDA
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int kLeastMajor = 8;  // mma.sync and cp.async

device::RowAttention problem_of(const SelAttnArgs& args) {
  device::RowAttention p;
  p.batch = static_cast<int>(args.q.size(0));
  p.num_queries = static_cast<int>(args.q.size(1));
  p.num_heads = static_cast<int>(args.q.size(2));
  p.qk_head_dim = static_cast<int>(args.q.size(3));
  p.num_keys = static_cast<int>(args.k.size(1));
  p.num_kv_heads = static_cast<int>(args.k.size(2));
  p.v_head_dim = static_cast<int>(args.v.size(3));
  p.num_ranges = static_cast<int>(args.ranges.size(3));
  p.first_position = static_cast<int>(args.first_position);
  p.scale = static_cast<float>(args.scale);
  p.element = element_of(args.q);
  return p;
}

std::string obstacle_of(const SelAttnArgs& args) {
  const std::string obstacle = kernel_obstacle(args.q, kLeastMajor, /*only=*/false);
  if (!obstacle.empty()) return obstacle;
  for (const at::Tensor& x : {args.q, args.k, args.v}) {
    if (x.size(0) > INT32_MAX || x.size(1) > INT32_MAX || x.size(2) > INT32_MAX) {
      return "a size does not fit 32 bits";
    }
  }
  const char* reason = device::unsupported_reason(problem_of(args));
  return reason == nullptr ? "" : reason;
}

SelAttnResult launch(const SelAttnArgs& args) {
  const c10::cuda::CUDAGuard guard(args.q.device());
  const at::Tensor q = addressable(args.q), k = addressable(args.k), v = addressable(args.v);
  const at::Tensor ranges = args.ranges.contiguous();
  const at::Tensor out = at::empty({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options());
  const at::Tensor lse =
      at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat));
  if (q.numel() == 0) return {out, lse};
  device::RowAttention p = problem_of(args);
  p.q = strided(q);
  p.k = strided(k);
  p.v = strided(v);
  p.ranges = ranges.const_data_ptr<int32_t>();
  p.out = out.mutable_data_ptr();
  p.lse = lse.mutable_data_ptr<float>();
  const cudaError_t status =
      device::row_attention_forward(p, c10::cuda::getCurrentCUDAStream(q.get_device()));
  TORCH_CHECK(status == cudaSuccess, "nsa::sel_attn: launch failed: ", cudaGetErrorString(status));
  return {out, lse};
}

struct FusedRows : torch::autograd::Function<FusedRows> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const at::Tensor& ranges,
                               int64_t first_position, double scale) {
    const auto [out, lse] = launch({q, k, v, ranges, first_position, scale});
    ctx->save_for_backward({q, k, v, ranges, out, lse});
    ctx->saved_data["first_position"] = first_position;
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["record"] = c10::IValue::make_capsule(current_record());
    ctx->set_materialize_grads(false);
    return {out, lse};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "nsa::sel_attn: double backward is not supported; detach the gradient first");
    const NvtxRange range("nsa.sel_attn.backward");
    const variable_list saved = ctx->get_saved_variables();
    const RunRecordScope scope(
        c10::static_intrusive_pointer_cast<RunRecord>(ctx->saved_data["record"].toCapsule()));
    record_backend("sel_attn.backward", "fused", "gather", "", "the kernel has no backward pass",
                   /*strict=*/false);
    variable_list result = rows_backward(
        {saved[0], saved[1], saved[2], saved[3], ctx->saved_data["first_position"].toInt(),
         ctx->saved_data["scale"].toDouble()},
        gather_method(), grads[0], grads[1], saved[4], saved[5]);
    result.resize(6);
    return result;
  }
};

SelAttnResult run(const SelAttnArgs& args) {
  const variable_list result =
      FusedRows::apply(args.q, args.k, args.v, args.ranges, args.first_position, args.scale);
  return {result[0], result[1]};
}

}  // namespace
#else
namespace {

std::string obstacle_of(const SelAttnArgs& args) { return kernel_obstacle(args.q, 0, false); }

SelAttnResult run(const SelAttnArgs& args) { return sel_attn_gather(args); }

}  // namespace
#endif

SelAttnResult sel_attn_fused(const SelAttnArgs& args, bool strict) {
  const std::string obstacle = obstacle_of(args);
  if (obstacle.empty()) {
    record_backend("sel_attn", "fused", "fused", "", "", strict);
    return run(args);
  }
  record_backend("sel_attn", "fused", "gather", "", obstacle, strict);
  return row_attention(args, gather_method());
}

}  // namespace nsa

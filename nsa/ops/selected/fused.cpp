// The project's CUDA kernels: by rows, a block of threads a (token, KV head), straight from the
// ranges; or by tiles of keys, which the backward pass always does, with whole causal tiles under
// masks for the first tokens. No plan, no gathered copies, no host synchronisation. Without a bound
// on the tiles of a row, backward is that of `gather`.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "nsa/backend/kernel_code.h"
#include "nsa/diagnostics/nvtx_range.h"
#include "nsa/ops/common/head_padding.h"
#include "nsa/ops/common/kernel_problem.h"
#include "nsa/ops/common/operator_call.h"
#include "nsa/ops/selected/backends.h"
#include "nsa/ops/selected/split_groups.h"

#ifdef NSA_WITH_CUDA
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "nsa/kernels/selected/rows/row_attention.h"
#include "nsa/kernels/selected/selected_backward.h"
#include "nsa/kernels/selected/selected_forward.h"
#include "nsa/kernels/selected/selected_plan.h"
#endif

namespace nsa {

#ifdef NSA_WITH_CUDA
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kKeysOfTile = 64;

/// The head dims are those that are computed; the tensors may have their own yet.
template <typename Problem>
Problem problem_of(const SelAttnArgs& args) {
  const kernels::HeadDims dims = computed_head_dims(args.q, args.v);
  Problem p;
  p.batch = static_cast<int>(args.q.size(0));
  p.num_queries = static_cast<int>(args.q.size(1));
  p.num_heads = static_cast<int>(args.q.size(2));
  p.qk_head_dim = static_cast<int>(dims.qk);
  p.num_keys = static_cast<int>(args.k.size(1));
  p.num_kv_heads = static_cast<int>(args.k.size(2));
  p.v_head_dim = static_cast<int>(dims.v);
  p.num_ranges = static_cast<int>(args.ranges.size(3));
  p.first_position = static_cast<int>(args.first_position);
  p.scale = static_cast<float>(args.scale);
  p.element = element_of(args.q);
  return p;
}

/// At most how many aligned tiles of 64 keys the ranges of a row meet.
int64_t tiles_of_row(const SelAttnArgs& args) {
  const int64_t all = (args.k.size(1) + kKeysOfTile - 1) / kKeysOfTile, block = args.block_size;
  if (block == 0 && args.max_tiles > 0)
    return std::clamp<int64_t>(args.max_tiles, 1, std::max<int64_t>(all, 1));
  if (block == 0) return std::max<int64_t>(all, 1);
  const int64_t of_block = block % kKeysOfTile == 0   ? block / kKeysOfTile
                           : kKeysOfTile % block == 0 ? 1
                                                      : (block - 1) / kKeysOfTile + 2;
  return std::clamp<int64_t>(args.ranges.size(3) * of_block, 1, std::max<int64_t>(all, 1));
}

/// Why the order of rows takes no such sizes; empty where it does.
std::string unsupported_rows(const SelAttnArgs& args) {
  for (const at::Tensor& x : {args.q, args.k, args.v}) {
    if (x.size(0) > INT32_MAX || x.size(1) > INT32_MAX || x.size(2) > INT32_MAX) {
      return "a size does not fit 32 bits";
    }
  }
  const char* reason = kernels::unsupported_reason(problem_of<kernels::RowAttention>(args));
  return reason == nullptr ? "" : reason;
}

kernels::SelectedBackward backward_problem_of(const SelAttnArgs& args, KernelCode code) {
  kernels::SelectedBackward p = problem_of<kernels::SelectedBackward>(args);
  p.max_tiles_of_row = static_cast<int>(tiles_of_row(args));
  p.block_size = static_cast<int>(args.block_size);
  p.code = launched_code(code);
  p.window.size = static_cast<int>(args.window);
  p.dense = kernels::dense_queries(p);
  if (p.dense == 0) p.window = {};
  return p;
}

kernels::RowAttention forward_problem_of(const SelAttnArgs& args) {
  kernels::RowAttention p = problem_of<kernels::RowAttention>(args);
  p.block_size = static_cast<int>(args.block_size);
  return p;
}

/// Whether the forward pass goes by tiles of keys, which only wgmma does; a question of sizes.
bool goes_by_keys(const SelAttnArgs& args, KernelCode code) {
  if ((args.block_size == 0 && args.max_tiles == 0) || code != KernelCode::kSm90) return false;
  const kernels::RowAttention p = forward_problem_of(args);
  const int tiles = static_cast<int>(tiles_of_row(args));
  return kernels::unsupported_by_keys(p, tiles) == nullptr && kernels::prefer_by_keys(p, tiles);
}

std::string order_of(const SelAttnArgs& args, const SelectedKernels& chosen) {
  if (!chosen.by_keys) return "by rows";
  const kernels::RowAttention p = forward_problem_of(args);
  const int dense = kernels::dense_queries(p, static_cast<int>(tiles_of_row(args)));
  if (dense == p.num_queries) return "whole tiles";
  return dense == 0 ? "order of keys"
                    : "whole tiles below " + std::to_string(dense) + ", then order of keys";
}

/// For the record: the order of the forward pass, and how it differs from the usual.
std::string detail_of(const SelAttnArgs& args, const SelectedKernels& chosen) {
  const std::string& more = chosen.forward.detail;
  return order_of(args, chosen) + (more.empty() ? "" : ", ") + more;
}

at::Tensor workspace_of(size_t bytes, const at::Tensor& like) {
  return at::empty({static_cast<int64_t>(bytes)}, like.options().dtype(at::kByte));
}

kernels::JoinedQueries joined_queries(const JoinedGradient& joined, const at::Tensor& q) {
  TORCH_INTERNAL_ASSERT(joined.terms.size() <= 2 && joined.out.sizes() == q.sizes());
  kernels::JoinedQueries p;
  for (size_t i = 0; i < joined.terms.size(); ++i) {
    TORCH_INTERNAL_ASSERT(joined.terms[i].is_contiguous() && joined.terms[i].sizes() == q.sizes());
    p.terms[i] = joined.terms[i].const_data_ptr();
  }
  p.out = joined.out.mutable_data_ptr();
  p.out_stride = q.size(1) > 1 ? joined.out.stride(1) : q.size(2) * q.size(3);
  if (joined.cos_sin.defined())
    p.cos_sin = reinterpret_cast<const float2*>(joined.cos_sin.const_data_ptr<float>());
  return p;
}

variable_list launch_backward(const SelAttnArgs& args, KernelCode code, const variable_list& grads,
                              const at::Tensor& out, const at::Tensor& lse,
                              const float* stats = nullptr, const JoinedGradient* joined = nullptr,
                              const kernels::IntervalRows* window = nullptr) {
  const c10::cuda::CUDAGuard guard(args.q.device());
  TORCH_INTERNAL_ASSERT(joined == nullptr || !pads_heads(args.q, args.v));
  const KernelInputs in(args.q, args.k, args.v);
  const auto& [dims, q, k, v] = in;
  const at::Tensor wide_out = stats == nullptr ? padded_heads(out, dims.v) : at::Tensor();
  const at::Tensor d_out = addressable(
      padded_heads(grads[0].defined() ? grads[0] : at::zeros(out.sizes(), out.options()), dims.v));
  const at::Tensor d_lse = grads[1].defined() ? grads[1].contiguous() : at::Tensor();
  const at::Tensor ranges = args.ranges.contiguous();
  if (q.numel() == 0)
    return {at::zeros(args.q.sizes(), q.options()), at::zeros(args.k.sizes(), q.options()),
            at::zeros(args.v.sizes(), q.options())};
  kernels::SelectedBackward p = backward_problem_of(args, code);
  // Of a single sequence the queries that are joined need no place in d_q.
  const int64_t rows = joined != nullptr && q.size(0) == 1 ? p.dense : q.size(1);
  const variable_list result{at::empty({q.size(0), rows, q.size(2), q.size(3)}, q.options()),
                             at::empty(k.sizes(), k.options()), at::empty(v.sizes(), v.options())};
  p.q = strided(q);
  p.k = strided(k);
  p.v = strided(v);
  p.d_out = strided(d_out);
  p.ranges = ranges.const_data_ptr<int32_t>();
  if (wide_out.defined()) p.out = wide_out.const_data_ptr();
  p.lse = lse.const_data_ptr<float>();
  p.d_lse = d_lse.defined() ? d_lse.const_data_ptr<float>() : nullptr;
  p.stats = stats;
  if (joined != nullptr) p.joined = joined_queries(*joined, q);
  TORCH_INTERNAL_ASSERT(p.window.size == 0 || window != nullptr);
  if (window != nullptr) p.window.rows = *window;
  p.d_q = result[0].mutable_data_ptr();
  p.d_k = result[1].mutable_data_ptr();
  p.d_v = result[2].mutable_data_ptr();
  const at::Tensor workspace = workspace_of(kernels::workspace_bytes(p), q);
  const cudaError_t status = kernels::selected_attention_backward(
      p, workspace.mutable_data_ptr(), c10::cuda::getCurrentCUDAStream(q.get_device()));
  TORCH_CHECK(status == cudaSuccess,
              "nsa::sel_attn: backward launch failed: ", cudaGetErrorString(status));
  return {narrowed_heads(result[0], args.q.size(3)), narrowed_heads(result[1], args.k.size(3)),
          narrowed_heads(result[2], args.v.size(3))};
}

SelAttnResult launch(const SelAttnArgs& args, bool in_order_of_keys) {
  const c10::cuda::CUDAGuard guard(args.q.device());
  const KernelInputs in(args.q, args.k, args.v);
  const auto& [dims, q, k, v] = in;
  const at::Tensor ranges = args.ranges.contiguous();
  const at::Tensor out = at::empty({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options());
  const at::Tensor lse =
      at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat));
  if (q.numel() == 0) return {narrowed_heads(out, args.v.size(3)), lse};
  kernels::RowAttention p = forward_problem_of(args);
  p.q = strided(q);
  p.k = strided(k);
  p.v = strided(v);
  p.ranges = ranges.const_data_ptr<int32_t>();
  p.out = out.mutable_data_ptr();
  p.lse = lse.mutable_data_ptr<float>();
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(q.get_device());
  const auto by_keys = [&] {
    const int tiles = static_cast<int>(tiles_of_row(args));
    const int dense = kernels::dense_queries(p, tiles);
    const at::Tensor workspace = workspace_of(kernels::workspace_bytes(p, tiles, dense), q);
    return kernels::selected_attention_forward(p, tiles, dense, workspace.mutable_data_ptr(),
                                               stream);
  };
  const cudaError_t status =
      in_order_of_keys ? by_keys() : kernels::row_attention_forward(p, stream);
  TORCH_CHECK(status == cudaSuccess, "nsa::sel_attn: launch failed: ", cudaGetErrorString(status));
  return {narrowed_heads(out, args.v.size(3)), lse};
}

struct FusedRows : torch::autograd::Function<FusedRows> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const at::Tensor& ranges,
                               int64_t first_position, double scale, int64_t block_size,
                               const SelectedKernels& chosen) {
    const auto [out, lse] =
        launch({q, k, v, ranges, first_position, scale, block_size}, chosen.by_keys);
    ctx->save_for_backward({q, k, v, ranges, out, lse});
    ctx->saved_data["first_position"] = first_position;
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["block_size"] = block_size;
    ctx->saved_data["code"] = static_cast<int64_t>(chosen.backward.code);
    ctx->saved_data["detail"] = chosen.backward.detail;
    ctx->saved_data["obstacle"] = chosen.backward.obstacle;
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
    const SelAttnArgs args{saved[0],
                           saved[1],
                           saved[2],
                           saved[3],
                           ctx->saved_data["first_position"].toInt(),
                           ctx->saved_data["scale"].toDouble(),
                           ctx->saved_data["block_size"].toInt()};
    const KernelChoice kernel{static_cast<KernelCode>(ctx->saved_data["code"].toInt()),
                              ctx->saved_data["obstacle"].toStringRef(),
                              ctx->saved_data["detail"].toStringRef()};
    record_backend("sel_attn.backward", "fused", kernel.runs() ? "fused" : "gather", kernel.detail,
                   kernel.obstacle, /*strict=*/false);
    variable_list result =
        kernel.runs()
            ? launch_backward(args, kernel.code, grads, saved[4], saved[5])
            : rows_backward(args, gather_method(), grads[0], grads[1], saved[4], saved[5]);
    result.resize(8);
    return result;
  }
};

/// Of a whole call, whose statistics are made outside.
size_t backward_workspace(const SelAttnArgs& args, KernelCode code) {
  kernels::SelectedBackward p = backward_problem_of(args, code);
  constexpr float kStats = 0;
  p.stats = &kStats;
  return kernels::workspace_bytes(p);
}

SelAttnResult run(const SelAttnArgs& args, const SelectedKernels& chosen) {
  if (!needs_node({args.q, args.k, args.v})) return launch(args, chosen.by_keys);
  const variable_list result =
      FusedRows::apply(args.q, args.k, args.v, args.ranges, args.first_position, args.scale,
                       args.block_size, chosen);
  return {result[0], result[1]};
}

KernelCall call_of(KernelFamily family, const SelAttnArgs& args) {
  return {.family = family,
          .qk_head_dim = args.q.size(3),
          .v_head_dim = args.v.size(3),
          .num_keys = args.k.size(1)};
}

}  // namespace

SelectedKernels choose_selected_kernels(const SelAttnArgs& args) {
  SelectedKernels chosen;
  chosen.forward = choose_kernel(args.q, call_of(KernelFamily::kSelectedRows, args));
  if (chosen.forward.runs()) chosen.forward = chosen.forward.unless(unsupported_rows(args));
  // The order of keys counts in 32 bits what unsupported_rows has found to fit.
  if (!chosen.forward.runs()) return chosen;
  chosen.backward = choose_kernel(args.q, call_of(KernelFamily::kSelectedKeys, args));
  if (!chosen.backward.runs()) return chosen;
  const KernelCode code = chosen.backward.code;
  chosen.by_keys = goes_by_keys(args, code);
  chosen.backward =
      chosen.backward.unless(kernels::unsupported_reason(backward_problem_of(args, code)));
  return chosen;
}

int64_t sel_attn_first_joined(const SelAttnArgs& args, KernelCode code) {
  if (pads_heads(args.q, args.v)) return args.q.size(1);
  return backward_problem_of(args, code).dense;
}

int64_t sel_attn_window_queries(const SelAttnArgs& args, KernelCode code) {
  if (args.window == 0 || pads_heads(args.q, args.v)) return 0;
  return backward_problem_of(args, code).dense;
}

SelAttnResult sel_attn_fused_forward(const SelAttnArgs& args, const SelectedKernels& chosen) {
  record_backend("sel_attn", "fused", "fused", detail_of(args, chosen), "", /*strict=*/false);
  return launch(args, chosen.by_keys);
}

std::vector<at::Tensor> sel_attn_fused_backward(const SelAttnArgs& args, KernelCode code,
                                                const at::Tensor& d_out, const at::Tensor& out,
                                                const at::Tensor& lse, const float* stats,
                                                const JoinedGradient* joined,
                                                const kernels::IntervalRows* window) {
  return launch_backward(args, code, {d_out, at::Tensor()}, out, lse, stats, joined, window);
}
#else
namespace {

std::string detail_of(const SelAttnArgs&, const SelectedKernels&) { return ""; }

SelAttnResult run(const SelAttnArgs& args, const SelectedKernels&) { return sel_attn_gather(args); }

size_t backward_workspace(const SelAttnArgs&, KernelCode) { return 0; }

}  // namespace

SelectedKernels choose_selected_kernels(const SelAttnArgs& args) {
  const KernelChoice forward =
      choose_kernel(args.q, {.family = KernelFamily::kSelectedRows, .qk_head_dim = args.q.size(3)});
  return {forward, false, {}};
}

int64_t sel_attn_first_joined(const SelAttnArgs&, KernelCode) { return 0; }

int64_t sel_attn_window_queries(const SelAttnArgs&, KernelCode) { return 0; }

std::vector<at::Tensor> sel_attn_fused_backward(const SelAttnArgs& args, KernelCode,
                                                const at::Tensor&, const at::Tensor&,
                                                const at::Tensor&, const float*,
                                                const JoinedGradient*,
                                                const kernels::IntervalRows*) {
  TORCH_CHECK(false, "nsa::sel_attn: ", choose_selected_kernels(args).obstacle());
}
#endif

const std::string& SelectedKernels::obstacle() const {
  return forward.runs() ? backward.obstacle : forward.obstacle;
}

SelectedKernels choose_split_kernels(const SelAttnArgs& args) {
  return choose_selected_kernels(split_sizes(args));
}

int64_t sel_attn_backward_workspace(const SelAttnArgs& given) {
  const SelAttnArgs sizes = split_sizes(given);
  const KernelChoice chosen = choose_selected_kernels(sizes).backward;
  return chosen.runs() ? static_cast<int64_t>(backward_workspace(sizes, chosen.code)) : 0;
}

SelAttnResult sel_attn_fused(const SelAttnArgs& given, bool strict) {
  const SelAttnArgs args = with_split_groups(given);
  const SelectedKernels chosen = choose_selected_kernels(args);
  if (chosen.forward.runs()) {
    record_backend("sel_attn", "fused", "fused",
                   detail_of(args, chosen) + split_detail(given, args), "", strict);
    return run(args, chosen);
  }
  record_backend("sel_attn", "fused", "gather", "", chosen.forward.obstacle, strict);
  return row_attention(given, gather_method());
}

}  // namespace nsa

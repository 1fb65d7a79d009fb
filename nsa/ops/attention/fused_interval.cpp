#include "nsa/ops/attention/fused_interval.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "nsa/backend/kernel_code.h"
#include "nsa/diagnostics/nvtx_range.h"
#include "nsa/diagnostics/record_stage.h"
#include "nsa/ops/common/head_padding.h"
#include "nsa/ops/common/kernel_problem.h"
#include "nsa/ops/common/operator_call.h"

#ifdef NSA_WITH_CUDA
#include "nsa/kernels/interval/document_tiles.h"
#include "nsa/kernels/interval/interval_backward.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

namespace nsa {

#ifdef NSA_WITH_CUDA
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

kernels::IntervalRule rule_of(const KeyMask& mask) {
  kernels::IntervalRule rule;
  if (mask.kind == KeyMask::kWindow) {
    rule.window = static_cast<int>(std::min<int64_t>(mask.extent, rule.kEverything));
  } else {
    rule.extent = static_cast<int>(mask.extent);
    rule.stride = static_cast<int>(mask.stride);
  }
  return rule;
}

/// The head dims are those that are computed; the tensors may have their own yet.
kernels::IntervalAttention problem_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const KeyMask& mask, double scale, KernelCode code) {
  const kernels::HeadDims dims = computed_head_dims(q, v);
  kernels::IntervalAttention p;
  p.q = strided(q);
  p.k = strided(k);
  p.v = strided(v);
  p.batch = static_cast<int>(q.size(0));
  p.num_queries = static_cast<int>(q.size(1));
  p.num_heads = static_cast<int>(q.size(2));
  p.qk_head_dim = static_cast<int>(dims.qk);
  p.num_keys = static_cast<int>(k.size(1));
  p.num_kv_heads = static_cast<int>(k.size(2));
  p.v_head_dim = static_cast<int>(dims.v);
  p.first_position = static_cast<int>(mask.first_position);
  p.rule = rule_of(mask);
  p.scale = static_cast<float>(scale);
  p.element = element_of(q);
  p.code = launched_code(code);
  return p;
}

kernels::BlockSelection selection_of(const NsaConfig& config, int32_t* block_idx, int32_t* ranges) {
  return {block_idx,
          ranges,
          static_cast<int>(config.sel_block_size),
          static_cast<int>(config.top_n),
          static_cast<int>(config.num_initial),
          static_cast<int>(config.num_local)};
}

FusedSelection launch(const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& v_in,
                      const KeyMask& mask, double scale, KernelCode code,
                      const NsaConfig* selection, const at::Tensor& tiles = {}) {
  const c10::cuda::CUDAGuard guard(q_in.device());
  const KernelInputs in(q_in, k_in, v_in);
  const auto& [dims, q, k, v] = in;
  FusedSelection result;
  result.out = at::empty({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options());
  result.lse = at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat));
  kernels::IntervalAttention p = problem_of(q, k, v, mask, scale, code);
  p.out = result.out.mutable_data_ptr();
  p.lse = result.lse.mutable_data_ptr<float>();
  if (selection != nullptr) {
    const auto options = q.options().dtype(at::kInt);
    result.block_idx = at::empty({q.size(0), q.size(1), k.size(2), selection->top_n}, options);
    result.ranges = at::empty({q.size(0), q.size(1), k.size(2), selection->top_n, 2}, options);
    p.selection = selection_of(*selection, result.block_idx.mutable_data_ptr<int32_t>(),
                               result.ranges.mutable_data_ptr<int32_t>());
  }
  if (tiles.defined()) {
    p.documents = reinterpret_cast<const kernels::DocumentTile*>(tiles.const_data_ptr<int32_t>());
    p.num_document_tiles = static_cast<int>(tiles.size(0));
  }
  if (q.numel() > 0) {
    const cudaError_t status =
        kernels::interval_attention_forward(p, c10::cuda::getCurrentCUDAStream(q.get_device()));
    check_launch(status, "fused_interval_attention");
  }
  result.out = narrowed_heads(result.out, v_in.size(3));
  return result;
}

struct FusedInterval : torch::autograd::Function<FusedInterval> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const KeyMask& mask, double scale,
                               const KernelChoice& kernel, const char* stage,
                               const NsaConfig* selection) {
    const FusedSelection result = launch(q, k, v, mask, scale, kernel.code, selection);
    ctx->save_for_backward({q, k, v, result.out, result.lse});
    ctx->saved_data["kind"] = static_cast<int64_t>(mask.kind);
    ctx->saved_data["first_position"] = mask.first_position;
    ctx->saved_data["extent"] = mask.extent;
    ctx->saved_data["stride"] = mask.stride;
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["code"] = static_cast<int64_t>(kernel.code);
    ctx->saved_data["detail"] = kernel.detail;
    ctx->saved_data["stage"] = std::string(stage);
    ctx->saved_data["record"] = c10::IValue::make_capsule(current_record());
    ctx->set_materialize_grads(false);
    if (selection == nullptr) return {result.out, result.lse};
    ctx->mark_non_differentiable({result.block_idx, result.ranges});
    return {result.out, result.lse, result.block_idx, result.ranges};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "nsa::fused_interval_attention: double backward is not supported; detach the "
                "gradient first");
    const std::string stage = ctx->saved_data["stage"].toStringRef() + ".backward";
    const NvtxRange range(("nsa." + stage).c_str());
    const variable_list saved = ctx->get_saved_variables();
    const KeyMask mask{static_cast<KeyMask::Kind>(ctx->saved_data["kind"].toInt()),
                       ctx->saved_data["first_position"].toInt(),
                       ctx->saved_data["extent"].toInt(),
                       ctx->saved_data["stride"].toInt(),
                       {}};
    const RunRecordScope scope(
        c10::static_intrusive_pointer_cast<RunRecord>(ctx->saved_data["record"].toCapsule()));
    record_stage(stage.c_str(), "fused", ctx->saved_data["detail"].toStringRef());
    const AttentionGradients g =
        fused_interval_backward(saved[0], saved[1], saved[2], saved[3], saved[4], grads[0],
                                grads[1], mask, ctx->saved_data["scale"].toDouble(),
                                static_cast<KernelCode>(ctx->saved_data["code"].toInt()));
    return {g.q, g.k, g.v, {}, {}, {}, {}, {}};
  }
};

/// Why no kernel takes these sizes; empty where one does.
std::string unsupported_sizes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const KeyMask& mask, KernelCode code, const NsaConfig* selection) {
  if (mask.kind == KeyMask::kRanges) return "the kernel takes one interval a row";
  for (const at::Tensor& x : {q, k, v}) {
    if (x.size(0) > INT32_MAX || x.size(1) > INT32_MAX || x.size(2) > INT32_MAX) {
      return "a size does not fit 32 bits";
    }
  }
  kernels::IntervalAttention p = problem_of(q, k, v, mask, 1.0, code);
  // Sizes only: another layout is copied first.
  p.q = p.k = p.v = {};
  int32_t asked = 0;
  if (selection != nullptr) p.selection = selection_of(*selection, &asked, nullptr);
  const char* reason = kernels::unsupported_reason(p);
  return reason == nullptr ? "" : reason;
}

}  // namespace

KernelChoice choose_interval_kernel(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                    const KeyMask& mask, const NsaConfig* selection) {
  const int64_t kv_heads = std::max<int64_t>(k.size(2), 1), group = q.size(2) / kv_heads;
  const bool wide_lists =
      selection != nullptr && kernels::SelectionSizes{group, mask.extent, mask.stride,
                                                      selection->sel_block_size, selection->top_n}
                                  .wide_lists();
  const KernelChoice kernel = choose_kernel(q, {.family = KernelFamily::kInterval,
                                                .qk_head_dim = q.size(3),
                                                .v_head_dim = v.size(3),
                                                .group_size = group,
                                                .selects = selection != nullptr,
                                                .wide_lists = wide_lists});
  if (!kernel.runs()) return kernel;
  return kernel.unless(unsupported_sizes(q, k, v, mask, kernel.code, selection));
}

AttentionGradients fused_interval_backward(const at::Tensor& q_in, const at::Tensor& k_in,
                                           const at::Tensor& v_in, const at::Tensor& out,
                                           const at::Tensor& lse, const at::Tensor& d_out_in,
                                           const at::Tensor& d_lse_in, const KeyMask& mask,
                                           double scale, KernelCode code,
                                           const kernels::IntervalRows* rows,
                                           const EarlierBranch* earlier) {
  const c10::cuda::CUDAGuard guard(q_in.device());
  const KernelInputs in(q_in, k_in, v_in);
  const auto& [dims, q, k, v] = in;
  const at::Tensor wide_out = rows == nullptr ? padded_heads(out, dims.v) : at::Tensor();
  const at::Tensor d_out = addressable(padded_heads(
      d_out_in.defined() ? d_out_in.to(q.scalar_type()) : at::zeros_like(out), dims.v));
  const at::Tensor d_lse = d_lse_in.defined() ? d_lse_in.to(at::kFloat).contiguous() : at::Tensor();
  const auto like = [](const at::Tensor& x) { return at::empty(x.sizes(), x.options()); };
  // A gradient of wider heads than q has stands alone.
  const bool adds = earlier != nullptr && q.size(3) == q_in.size(3);
  const AttentionGradients g{adds ? earlier->d_q : like(q), like(k), like(v)};
  kernels::IntervalBackward p;
  p.forward = problem_of(q, k, v, mask, scale, code);
  if (wide_out.defined()) p.forward.out = wide_out.data_ptr();  // read only
  p.forward.lse = lse.data_ptr<float>();
  p.d_out = strided(d_out);
  p.d_lse = d_lse.defined() ? d_lse.const_data_ptr<float>() : nullptr;
  if (rows != nullptr) p.rows = *rows;
  kernels::IntervalBackward before;
  std::optional<KernelInputs> of_earlier;
  if (adds) {
    of_earlier.emplace(q_in, earlier->k, earlier->v);
    before.forward = problem_of(of_earlier->q, of_earlier->k, of_earlier->v, earlier->mask,
                                earlier->scale, earlier->code);
    before.d_out = p.d_out, before.rows = earlier->rows;
    p.earlier = &before;
    p.forward.first_query = static_cast<int>(earlier->first_query);
  }
  p.d_q = g.q.mutable_data_ptr();
  p.d_k = g.k.mutable_data_ptr();
  p.d_v = g.v.mutable_data_ptr();
  const at::Tensor workspace =
      at::empty({static_cast<int64_t>(kernels::workspace_bytes(p))}, q.options().dtype(at::kByte));
  p.workspace = workspace.mutable_data_ptr();
  const cudaError_t status =
      kernels::interval_attention_backward(p, c10::cuda::getCurrentCUDAStream(q.get_device()));
  check_launch(status, "fused_interval_attention backward");
  at::Tensor d_q = narrowed_heads(g.q, q_in.size(3));
  if (earlier != nullptr && !adds) d_q = earlier->d_q.add_(d_q);
  return {d_q, narrowed_heads(g.k, k_in.size(3)), narrowed_heads(g.v, v_in.size(3))};
}

FusedSelection fused_interval_documents(const at::Tensor& q, const at::Tensor& k,
                                        const at::Tensor& v, const KeyMask& mask, double scale,
                                        KernelCode code, const at::Tensor& tiles,
                                        const NsaConfig* selection) {
  return launch(q, k, v, mask, scale, code, selection, tiles);
}

int64_t interval_tile_tokens(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             KernelCode code, bool selects) {
  kernels::IntervalAttention p;
  int32_t asked = 0;
  p.num_heads = static_cast<int>(q.size(-2)), p.num_kv_heads = static_cast<int>(k.size(-2));
  p.qk_head_dim = static_cast<int>(computed_head_dims(q, v).qk), p.code = launched_code(code);
  if (selects) p.selection.block_idx = &asked;
  return kernels::tokens_of_tile(p);
}

FusedSelection fused_interval_attention(const at::Tensor& q, const at::Tensor& k,
                                        const at::Tensor& v, const KeyMask& mask, double scale,
                                        const KernelChoice& kernel, const char* stage,
                                        const NsaConfig* selection) {
  if (!needs_node({q, k, v})) return launch(q, k, v, mask, scale, kernel.code, selection);
  const variable_list r = FusedInterval::apply(q, k, v, mask, scale, kernel, stage, selection);
  if (selection == nullptr) return {r[0], r[1], {}, {}};
  return {r[0], r[1], r[2], r[3]};
}
#else
KernelChoice choose_interval_kernel(const at::Tensor& q, const at::Tensor&, const at::Tensor&,
                                    const KeyMask&, const NsaConfig*) {
  return choose_kernel(q, {.family = KernelFamily::kInterval, .qk_head_dim = q.size(3)});
}

FusedSelection fused_interval_attention(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                        const KeyMask&, double, const KernelChoice& kernel,
                                        const char*, const NsaConfig*) {
  TORCH_CHECK(false, "nsa::fused_interval_attention: ", kernel.obstacle);
}
#endif

}  // namespace nsa

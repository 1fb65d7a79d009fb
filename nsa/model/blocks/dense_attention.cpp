#include "nsa/model/blocks/dense_attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "nsa/diagnostics/nvtx_range.h"
#include "nsa/layer/nsa_module.h"
#include "nsa/ops/attention/library_attention.h"
#include "nsa/ops/linear/rounded_linear.h"
#include "nsa/ops/rope/rope.h"
#include "nsa/ops/window/win_attn.h"

namespace nsa {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The library's flash attention over all earlier keys; its backward is the deterministic one.
struct FlashCausal : torch::autograd::Function<FlashCausal> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, double scale) {
    const auto [out, lse] = flash_window_forward({q, k, v, k.size(1), scale});
    ctx->save_for_backward({q, k, v, out, lse});
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["record"] = c10::IValue::make_capsule(current_record());
    return out;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const NvtxRange range("model.dense_attn.backward");
    const variable_list saved = ctx->get_saved_variables();
    const RunRecordScope scope(
        c10::static_intrusive_pointer_cast<RunRecord>(ctx->saved_data["record"].toCapsule()));
    const LibraryGradients g = flash_window_backward(
        {saved[0], saved[1], saved[2], saved[1].size(1), ctx->saved_data["scale"].toDouble()},
        grads[0], saved[3], saved[4]);
    return {g.q, g.k, g.v, {}};
  }
};

/// q [B, S, Hq, dk], k and v [B, S, Hkv, .] on a CPU -> [B, S, Hq, dv].
at::Tensor cpu_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const int64_t group = q.size(2) / k.size(2);
  const auto heads_first = [](const at::Tensor& t) { return t.transpose(1, 2); };
  return heads_first(at::scaled_dot_product_attention(
      heads_first(q), heads_first(k.repeat_interleave(group, 2)),
      heads_first(v.repeat_interleave(group, 2)), /*attn_mask=*/{}, /*dropout_p=*/0.0,
      /*is_causal=*/true));
}

}  // namespace

DenseAttentionImpl::DenseAttentionImpl(int64_t dim, const NsaConfig& config,
                                       const ProjectionConfig& projections)
    : config_(config) {
  const auto drawn = NsaAttention(dim, config, projections)->named_parameters();
  const auto keep = [&](const char* name) {
    return register_parameter(name, drawn[name].detach());
  };
  w_q_ = keep("w_q");
  w_k_ = keep(projections.shared_kv ? "w_k" : "w_k_win");
  w_v_ = keep(projections.shared_kv ? "w_v" : "w_v_win");
  w_o_ = keep("w_o");
}

at::Tensor DenseAttentionImpl::attend(const at::Tensor& q, const at::Tensor& k,
                                      const at::Tensor& v) const {
  const NvtxRange range("model.dense_attn");
  const auto record = [](const char* ran, const std::string& why) {
    record_backend("dense_attn", "auto", ran, "", why, /*strict=*/false);
  };
  if (q.is_cpu() && q.numel() > 0) {
    record("sdpa", "");
    return cpu_attention(q, k, v);
  }
  const std::string obstacle = flash_obstacle(q, k, v);
  record(obstacle.empty() ? "flash" : "plain", obstacle);
  if (!obstacle.empty()) return win_attn(q, k, v, std::max<int64_t>(1, q.size(1))).first;
  const double scale = 1.0 / std::sqrt(static_cast<double>(q.size(3)));
  return FlashCausal::apply(q.contiguous(), k.contiguous(), v.contiguous(), scale);
}

DenseAttentionImpl::Outputs DenseAttentionImpl::forward(const at::Tensor& x) {
  const auto record = c10::make_intrusive<RunRecord>(/*audit=*/false, current_record());
  const RunRecordScope scope(record);
  const auto heads = [&](const at::Tensor& weight, int64_t num_heads) {
    return rounded_linear(x, {weight}).unflatten(-1, {num_heads, weight.size(0) / num_heads});
  };
  at::Tensor q = heads(w_q_, config_.num_heads), k = heads(w_k_, config_.num_kv_heads);
  const at::Tensor v = heads(w_v_, config_.num_kv_heads);
  if (config_.rope != RopeMode::kNone) {
    const at::Tensor positions = at::arange(x.size(1), x.options().dtype(at::kLong));
    const at::Tensor table =
        rope_table(positions, config_.qk_head_dim, config_.rope_base, x.scalar_type());
    q = rope_apply(q, table, config_.rope_pairs);
    k = rope_apply(k, table, config_.rope_pairs);
  }
  const at::Tensor o = attend(q, k, v);
  return {rounded_linear(o.flatten(-2), {w_o_}), o, record};
}

}  // namespace nsa

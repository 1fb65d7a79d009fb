#include "nsa/layer/fused/split_projection.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>

#include "nsa/ops/gate/fused_mlp.h"

namespace nsa {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr size_t kParts = 7;  ///< of the node: each branch has its own K and V

/// Heads and head dim of the parts, in their order.
std::vector<std::pair<int64_t, int64_t>> parts_of(const NsaConfig& c, const ProjectionConfig& p) {
  std::vector<std::pair<int64_t, int64_t>> parts = {{c.num_heads, c.qk_head_dim}};
  for (const int64_t dim : {c.qk_head_dim, c.v_head_dim})
    for (int64_t i = 0; i < p.num_kv(); ++i) parts.emplace_back(c.num_kv_heads, dim);
  if (!p.has_gate_mlp()) parts.emplace_back(c.num_heads, 3);
  return parts;
}

/// The parts as [..., H, D] views of columns [..., W].
variable_list views_of(const at::Tensor& columns, const NsaConfig& config,
                       const ProjectionConfig& projections = {}) {
  const auto parts = parts_of(config, projections);
  std::vector<int64_t> widths;
  for (const auto& [heads, dim] : parts) widths.push_back(heads * dim);
  variable_list views = columns.split_with_sizes(widths, -1);
  for (size_t i = 0; i < views.size(); ++i)
    views[i] = views[i].unflatten(-1, {parts[i].first, parts[i].second});
  return views;
}

/// [..., H, D] as rows [N, H, D], without a copy.
at::Tensor rows_of(const at::Tensor& x) { return x.flatten(0, -3); }

/// Gradients of the parts as one tensor that is not shared: the tensor itself where the parts are
/// its views, else a copy; zeros where a part has no gradient.
at::Tensor joined(const variable_list& grads, const at::Tensor& like, const NsaConfig& config) {
  const auto end = grads.begin() + kParts;
  if (std::all_of(grads.begin(), end, [](const at::Tensor& g) { return g.defined(); })) {
    const ColumnPlaces places = column_places({grads.begin(), end});
    // The queries' gradient will be added to; views keep what they are views of.
    const bool alone = grads[0].use_count() == 1 && grads[0].storage().use_count() <= kParts + 1;
    if (places.width == like.size(-1) && std::is_sorted(places.first.begin(), places.first.end())) {
      const at::Tensor whole = grads[0].as_strided(like.sizes(), like.strides());
      return alone ? whole : whole.clone();
    }
  }
  const at::Tensor whole = at::zeros_like(like);
  const variable_list views = views_of(whole, config);
  for (size_t i = 0; i < kParts; ++i)
    if (grads[i].defined()) views[i].copy_(grads[i]);
  return whole;
}

struct SplitProjection : torch::autograd::Function<SplitProjection> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& columns,
                               const at::Tensor& w1, const at::Tensor& b1, const at::Tensor& w2,
                               const at::Tensor& b2, const NsaConfig& config) {
    variable_list out = views_of(columns.detach(), config);
    ctx->save_for_backward({columns, w1, b1, w2, b2});
    ctx->saved_data["sizes"] = std::vector<int64_t>{config.num_heads, config.num_kv_heads,
                                                    config.qk_head_dim, config.v_head_dim};
    ctx->set_materialize_grads(false);
    std::vector<int64_t> sizes = out[0].sizes().vec();
    sizes.end()[-2] = config.num_kv_heads, sizes.back() = 3;
    const GateWeights gate{w1, b1, w2, b2};
    out.push_back(gate_mlp_by_kernel(rows_of(out[0]), gate, config.num_kv_heads).view(sizes));
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "nsa::NsaAttention: double backward is not supported; detach the gradient first");
    const variable_list saved = ctx->get_saved_variables();
    const std::vector<int64_t> sizes = ctx->saved_data["sizes"].toIntVector();
    NsaConfig config;
    config.num_heads = sizes[0], config.num_kv_heads = sizes[1];
    config.qk_head_dim = sizes[2], config.v_head_dim = sizes[3];
    const at::Tensor d_columns = joined(grads, saved[0], config);
    GateWeights d;
    if (grads[kParts].defined())
      d = gate_mlp_backward_by_kernel(rows_of(views_of(saved[0], config)[0]),
                                      {saved[1], saved[2], saved[3], saved[4]},
                                      grads[kParts].reshape({-1, config.num_kv_heads, 3}),
                                      rows_of(views_of(d_columns, config)[0]));
    return {d_columns, d.w1, d.b1, d.w2, d.b2, {}};
  }
};

/// The parts and, where there are any, gate logits behind them.
NsaInputs inputs_of(const variable_list& parts, const ProjectionConfig& projections = {}) {
  const auto num_kv = static_cast<size_t>(projections.num_kv());
  const auto key = [&](size_t branch) { return parts[1 + branch % num_kv]; };
  const auto value = [&](size_t branch) { return parts[1 + num_kv + branch % num_kv]; };
  NsaInputs in;
  in.q = parts[0];
  in.k_cmp_src = key(0), in.k_sel = key(1), in.k_win = key(2);
  in.v_cmp_src = value(0), in.v_sel = value(1), in.v_win = value(2);
  if (parts.size() > 1 + 2 * num_kv) in.gate_logits = parts.back();
  return in;
}

}  // namespace

ColumnPlaces column_places(const std::vector<at::Tensor>& inputs) {
  ColumnPlaces places;
  const at::Tensor& any = inputs.front();
  std::vector<std::pair<int64_t, int64_t>> spans;  // first column, width
  int64_t width = 0, begin = any.storage_offset();
  for (const at::Tensor& x : inputs) {
    width += x.size(-1) * x.size(-2);
    begin = std::min(begin, x.storage_offset());
  }
  for (const at::Tensor& x : inputs) {
    bool fits = x.dim() == any.dim() && x.dim() >= 3 && x.storage().is_alias_of(any.storage()) &&
                x.dtype() == any.dtype() && x.stride(-1) == 1 && x.stride(-2) == x.size(-1);
    for (int64_t axis = x.dim() - 3, stride = width; fits && axis >= 0; --axis) {
      fits = x.size(axis) == any.size(axis) && (x.size(axis) == 1 || x.stride(axis) == stride);
      stride *= x.size(axis);
    }
    if (!fits) return {};
    places.first.push_back(x.storage_offset() - begin);
    spans.emplace_back(places.first.back(), x.size(-1) * x.size(-2));
  }
  std::sort(spans.begin(), spans.end());
  int64_t end = 0;
  for (const auto& [first, columns] : spans) {
    if (first != end) return {};
    end = first + columns;
  }
  places.width = width;
  return places;
}

NsaInputs split_projection(const at::Tensor& columns, const GateWeights& gate,
                           const NsaConfig& config, const ProjectionConfig& projections) {
  const at::Tensor whole = columns.contiguous();
  if (!projections.has_gate_mlp())
    return inputs_of(views_of(whole, config, projections), projections);
  const at::Tensor q = whole.detach()
                           .narrow(-1, 0, config.num_heads * config.qk_head_dim)
                           .unflatten(-1, {config.num_heads, config.qk_head_dim});
  if (whole.numel() > 0 && !projections.shared_kv && gates_by_kernel(rows_of(q), gate))
    return inputs_of(SplitProjection::apply(whole, gate.w1, gate.b1, gate.w2, gate.b2, config));
  NsaInputs in = inputs_of(views_of(whole, config, projections), projections);
  in.gate_logits = gate_mlp(in.q, gate, config.num_kv_heads);
  return in;
}

}  // namespace nsa

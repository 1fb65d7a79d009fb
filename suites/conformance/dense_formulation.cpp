#include "suites/conformance/dense_formulation.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "suites/compare/tolerance.h"

namespace suites {
namespace {

using at::Tensor;

Tensor to_acc(const Tensor& x) { return x.to(accumulation_type(x.scalar_type())); }

/// 0, 1, ..., count-1 on the device of `like`.
Tensor counting(int64_t count, const Tensor& like) {
  return at::arange(count, at::TensorOptions().dtype(at::kLong).device(like.device()));
}

/// One-hot [N_c, l, S]: tap i of block b is token b * d + i.
Tensor tap_selector(const CaseConfig& c, const Tensor& like) {
  const Tensor block = counting(c.num_compressed(), like).view({-1, 1, 1}),
               tap = counting(c.block_size, like).view({1, -1, 1});
  const Tensor token = counting(c.tokens, like).view({1, 1, -1});
  return token == block * c.block_stride + tap;
}

/// Identity whose gradient is rounded to the input type: in the plain low-precision computation
/// every product takes operands of the input type, so dS is rounded before dS*K and dS^T*Q as P is
/// before P*V.
struct RoundGradient : torch::autograd::Function<RoundGradient> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x,
                        at::ScalarType type) {
    context->saved_data["type"] = static_cast<int64_t>(type);
    return x.view_as(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto type = static_cast<at::ScalarType>(context->saved_data["type"].toInt());
    return {gradients[0].to(type).to(gradients[0].scalar_type()), Tensor()};
  }
};

}  // namespace

Tensor dense_rope(const Tensor& x, const Tensor& positions, double base) {
  const int64_t dim = x.size(-1);
  const Tensor m = at::arange(dim / 2, positions.options());
  const Tensor angle =
      positions.unsqueeze(-1) * at::exp(m * (-2.0 * std::log(base) / static_cast<double>(dim)));
  const auto acc = accumulation_type(x.scalar_type());
  const Tensor cos = at::cos(angle).to(acc).view({1, -1, 1, dim / 2}),
               sin = at::sin(angle).to(acc).view({1, -1, 1, dim / 2});
  const auto pair = x.to(acc).unflatten(-1, {dim / 2, 2}).unbind(-1);
  return at::stack({pair[0] * cos - pair[1] * sin, pair[0] * sin + pair[1] * cos}, -1)
      .flatten(-2)
      .to(x.scalar_type());
}

Tensor dense_compress(const CaseConfig& c, const Tensor& source, const DensePhi& weights,
                      bool is_key) {
  const auto fp64 = at::TensorOptions().dtype(at::kDouble).device(source.device());
  const bool rotate_first = is_key && c.rope == RopeKind::kBeforePool;
  const Tensor tokens =
      to_acc(rotate_first ? dense_rope(source, at::arange(c.tokens, fp64), c.rope_base) : source);
  const Tensor taps =
      at::einsum("nls,bshd->bnhld", {tap_selector(c, source).to(tokens.scalar_type()), tokens});
  Tensor pooled;
  if (c.phi == Phi::kMean) {
    pooled = taps.mean(-2);
  } else if (c.phi == Phi::kConv) {
    pooled = (taps * to_acc(weights.conv).t()).sum(-2);
  } else {
    const Tensor x = (taps + to_acc(weights.pe)).flatten(-2);
    const Tensor hidden = at::silu(at::matmul(x, to_acc(weights.w1).t()) + to_acc(weights.b1));
    pooled = at::matmul(hidden, to_acc(weights.w2).t()) + to_acc(weights.b2);
  }
  if (is_key && c.rope == RopeKind::kBlockStart)
    pooled = dense_rope(pooled, at::arange(c.num_compressed(), fp64) * c.block_stride, c.rope_base);
  return pooled.to(source.scalar_type());
}

DenseAttention dense_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                               const Tensor& mask) {
  const int64_t kv_heads = k.size(2), group = q.size(2) / kv_heads;
  const Tensor grouped = to_acc(q).unflatten(2, {kv_heads, group});
  const Tensor products =
      RoundGradient::apply(at::einsum("btkgd,bskd->btkgs", {grouped, to_acc(k)}), q.scalar_type());
  const Tensor logits = products / std::sqrt(static_cast<double>(q.size(3)));
  const Tensor masked = logits.masked_fill(mask.unsqueeze(3).logical_not(), -INFINITY);
  if (k.size(1) == 0)
    return {at::zeros({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options()),
            at::full({q.size(0), q.size(1), q.size(2)}, -INFINITY, grouped.options()),
            masked.flatten(2, 3)};
  // An empty row has no maximum: 0 stands in, and its sum of exponentials is 0.
  const Tensor top = masked.detach().amax(-1, true);
  const Tensor shift = at::where(at::isinf(top), at::zeros_like(top), top);
  const Tensor e = at::exp(masked - shift), sum = e.sum(-1, true);
  const Tensor empty = sum == 0, safe = at::where(empty, at::ones_like(sum), sum);
  const Tensor p = e / safe;
  const Tensor rounded = p.to(q.scalar_type()).to(p.scalar_type());
  const Tensor o = at::einsum("btkgs,bskd->btkgd", {rounded, to_acc(v)});
  const Tensor lse = (at::log(safe) + shift).masked_fill(empty, -INFINITY).squeeze(-1);
  return {o.flatten(2, 3).to(q.scalar_type()), lse.flatten(2, 3), p.flatten(2, 3)};
}

Tensor visible_mask(const CaseConfig& c) {
  const Tensor t = at::arange(c.tokens).view({1, -1, 1, 1}),
               block = at::arange(c.num_compressed()).view({1, 1, 1, -1});
  return block * c.block_stride + c.block_size - 1 <= t;
}

Tensor window_mask(const CaseConfig& c) {
  const Tensor t = at::arange(c.tokens).view({1, -1, 1, 1}),
               s = at::arange(c.tokens).view({1, 1, 1, -1});
  return (s <= t).logical_and(s > t - c.window);
}

Tensor selected_mask(const CaseConfig& c, const Tensor& block_idx) {
  const Tensor block = counting(c.num_sel_blocks(), block_idx);
  const Tensor chosen = (block_idx.unsqueeze(-1) == block).any(-2);  // [B,S,Hkv,nblocks]
  const Tensor t = counting(c.tokens, block_idx).view({1, -1, 1, 1}),
               s = counting(c.tokens, block_idx).view({1, 1, 1, -1});
  return chosen.repeat_interleave(c.sel_block_size, -1).narrow(-1, 0, c.tokens).logical_and(s <= t);
}

Tensor dense_scores(const CaseConfig& c, const Tensor& p_cmp) {
  const int64_t span = c.block_size / c.block_stride, width = c.sel_block_size / c.block_stride;
  const Tensor i = counting(c.num_compressed(), p_cmp).unsqueeze(1),
               j = counting(c.num_sel_blocks(), p_cmp).unsqueeze(0);
  const Tensor weight =
      (at::minimum(i + span, (j + 1) * width) - at::maximum(i, j * width)).clamp_min(0);
  const Tensor group_p = p_cmp.unflatten(2, {c.num_kv_heads, c.group_size()}).sum(3);
  return at::matmul(group_p, weight.to(p_cmp.scalar_type())).detach();
}

Tensor dense_select(const CaseConfig& c, const Tensor& scores) {
  const Tensor current =
      at::floor_divide(counting(c.tokens, scores), c.sel_block_size).view({1, -1, 1, 1});
  const Tensor j = counting(c.num_sel_blocks(), scores).view({1, 1, 1, -1});
  const Tensor forced = (j < c.n_initial).logical_or(j > current - c.n_local);
  // Scores are sums of probabilities, so >= 0: NaN below every number, the future below NaN, forced
  // above all.
  Tensor key = at::where(at::isnan(scores), at::full_like(scores, -1), scores);
  key = at::where(forced, at::full_like(key, INFINITY), key);
  key = at::where(j <= current, key, at::full_like(key, -2));
  const Tensor order = std::get<1>(at::sort(key, /*stable=*/true, -1, /*descending=*/true));
  const int64_t places = std::min(c.top_n, c.num_sel_blocks());
  const Tensor place = counting(places, scores).view({1, 1, 1, -1});
  const Tensor taken = place < at::minimum(current + 1, at::full_like(current, c.top_n));
  const int64_t behind = c.num_sel_blocks();  // sorts behind every id
  const Tensor first = order.narrow(-1, 0, places);
  const Tensor ids =
      std::get<0>(at::sort(at::where(taken, first, at::full_like(first, behind)), -1));
  const Tensor padded = at::constant_pad_nd(ids, {0, c.top_n - places}, behind);
  return at::where(padded == behind, at::full_like(padded, -1), padded).to(at::kInt);
}

Tensor dense_combine(const CaseConfig& c, const Tensor& gate, const Tensor& o_cmp,
                     const Tensor& o_sel, const Tensor& o_win) {
  Tensor g = to_acc(gate);
  if (c.gate == GateKind::kSigmoid) g = at::sigmoid(g);
  if (c.gate == GateKind::kSoftmax) g = at::softmax(g, -1);
  if (g.size(2) != c.num_heads) g = g.repeat_interleave(c.group_size(), 2);
  const auto weight = g.unsqueeze(-2).unbind(-1);
  return (weight[0] * to_acc(o_cmp) + weight[1] * to_acc(o_sel) + weight[2] * to_acc(o_win))
      .to(o_cmp.scalar_type());
}

Tensor dense_gate_logits(const CaseConfig& c, const Tensor& q, const Tensor& w1, const Tensor& b1,
                         const Tensor& w2, const Tensor& b2) {
  const Tensor mean = to_acc(q).unflatten(2, {c.num_kv_heads, c.group_size()}).mean(3);
  const Tensor hidden = at::silu(at::matmul(mean, to_acc(w1).t()) + to_acc(b1));
  return at::matmul(hidden, to_acc(w2).t()) + to_acc(b2);
}

DenseOutputs dense_nsa(const CaseConfig& c, const DenseInputs& in,
                       const std::optional<Tensor>& block_idx) {
  const Tensor positions =
      at::arange(c.tokens, at::TensorOptions().dtype(at::kDouble).device(in.q.device()));
  const auto rotated = [&](const Tensor& x) {
    return c.rope == RopeKind::kNone ? x : dense_rope(x, positions, c.rope_base);
  };
  const auto here = [&](const Tensor& mask) { return mask.to(in.q.device()); };
  DenseOutputs out;
  out.q_rot = rotated(in.q);
  out.k_sel_rot = rotated(in.k_sel);
  out.k_win_rot = rotated(in.k_win);
  out.k_cmp = dense_compress(c, in.k_cmp_src, in.phi_k, true);
  out.v_cmp = dense_compress(c, in.v_cmp_src, in.phi_v, false);
  out.cmp = dense_attention(out.q_rot, out.k_cmp, out.v_cmp, here(visible_mask(c)));
  out.scores = dense_scores(c, out.cmp.p);
  out.block_idx = block_idx ? *block_idx : dense_select(c, out.scores);
  out.sel = dense_attention(out.q_rot, out.k_sel_rot, in.v_sel, selected_mask(c, out.block_idx));
  out.win = dense_attention(out.q_rot, out.k_win_rot, in.v_win, here(window_mask(c)));
  out.o = dense_combine(c, in.gate, out.cmp.o, out.sel.o, out.win.o);
  return out;
}

}  // namespace suites

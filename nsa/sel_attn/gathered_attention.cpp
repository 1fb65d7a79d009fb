#include "nsa/sel_attn/gathered_attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>

#include "nsa/core/attention_chunks.h"
#include "nsa/core/key_mask.h"
#include "nsa/core/masked_softmax.h"

namespace nsa {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
constexpr int64_t kChunkValues = int64_t{1} << 27;  // gathered values, or mask places, a chunk

/// Legend: R = B * Hkv, rows of a chunk are (b, KV head, query), L the longest selection of a
/// chunk.
struct Gather {
  Gather(const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& v_in,
         const at::Tensor& ranges, int64_t first_position, double scale_in)
      : q(q_in),
        heads(q_in, k_in),
        mask{KeyMask::kRanges, first_position, 0, 1, ranges},
        scale(scale_in),
        num_keys(k_in.size(1)),
        k(heads.keys(k_in).flatten(0, 1)),
        v(heads.keys(v_in).flatten(0, 1)) {}

  /// Queries a chunk: bounded by the mask [R, c, N] and by the gathered rows [R, c, L, dk + dv].
  int64_t step() const {
    const at::Tensor length = mask.ranges.select(-1, 1).sub(mask.ranges.select(-1, 0)).clamp_min(0);
    const int64_t longest = length.numel() == 0 ? 0 : length.sum(-1).max().item<int64_t>();
    const int64_t gathered = std::min(longest, num_keys) * (k.size(1) + v.size(1));
    const int64_t places = std::max(gathered, num_keys);
    const int64_t matrices = std::max<int64_t>(1, heads.batch * heads.num_kv_heads);
    return std::clamp<int64_t>(kChunkValues / std::max<int64_t>(1, matrices * places), 1, 512);
  }

  /// [B, S, Hq, D] -> [R*c, G, D] in the type of products.
  at::Tensor rows(const at::Tensor& x, int64_t begin, int64_t count) const {
    return x.narrow(1, begin, count)
        .unflatten(2, {heads.num_kv_heads, heads.group_size})
        .transpose(1, 2)
        .to(heads.product_type)
        .reshape({heads.batch * heads.num_kv_heads * count, heads.group_size, x.size(3)});
  }
  void store_rows(const at::Tensor& x, int64_t begin, int64_t count, at::Tensor& y) const {
    y.narrow(1, begin, count)
        .unflatten(2, {heads.num_kv_heads, heads.group_size})
        .copy_(x.view({heads.batch, heads.num_kv_heads, count, heads.group_size, x.size(2)})
                   .transpose(1, 2));
  }

  at::Tensor q;
  GroupedHeads heads;
  KeyMask mask;
  double scale;
  int64_t num_keys;
  at::Tensor k, v;  ///< [R*N, D]
};

/// The selected keys and values of one chunk.
struct Selected {
  at::Tensor index;    ///< [R*c*L] into Gather::k
  at::Tensor padding;  ///< [R*c, L, 1]; padded places read as 0
  at::Tensor k, v;     ///< [R*c, L, D]
};

Selected select_rows(const Gather& g, int64_t begin, int64_t count) {
  const KeyMask::Span span = g.mask.span(begin, count, g.num_keys);
  const int64_t num_rows = g.heads.batch * g.heads.num_kv_heads * count;
  const at::Tensor allowed = g.mask.allowed(begin, count, span, g.q.device())
                                 .expand({g.heads.batch, g.heads.num_kv_heads, 1, count, span.end})
                                 .reshape({num_rows, span.end});
  const at::Tensor length = allowed.sum(-1);
  const int64_t longest = length.numel() == 0 ? 0 : length.max().item<int64_t>();
  const auto places = allowed.nonzero().unbind(1);  // rows, keys; ascending
  const at::Tensor& row = places[0];
  const at::Tensor before = length.cumsum(0).sub_(length);
  const at::Tensor slot = at::arange(row.size(0), row.options()).sub_(before.index_select(0, row));
  at::Tensor key = at::zeros({num_rows, longest}, row.options());
  key.index_put_({row, slot}, places[1]);
  const at::Tensor matrix = at::arange(num_rows, row.options()).floor_divide(count);
  Selected selected;
  selected.index = key.add_(matrix.mul(g.num_keys).unsqueeze(1)).flatten();
  selected.padding = at::arange(longest, row.options()).ge(length.unsqueeze(1)).unsqueeze(-1);
  const auto gather = [&](const at::Tensor& x) {
    return x.index_select(0, selected.index)
        .view({num_rows, longest, x.size(1)})
        .masked_fill_(selected.padding, 0.0);
  };
  selected.k = gather(g.k);
  selected.v = gather(g.v);
  return selected;
}

at::Tensor logits_of(const Gather& g, const at::Tensor& q_rows, const Selected& selected) {
  return g.heads.product(q_rows, selected.k.transpose(1, 2))
      .mul_(g.scale)
      .masked_fill_(selected.padding.transpose(1, 2), kMinusInfinity);
}

struct GatheredAttention : torch::autograd::Function<GatheredAttention> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const at::Tensor& ranges,
                               int64_t first_position, double scale) {
    const Gather g(q, k, v, ranges, first_position, scale);
    at::Tensor out = at::zeros({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options());
    at::Tensor lse = at::full({q.size(0), q.size(1), q.size(2), 1}, kMinusInfinity,
                              q.options().dtype(g.heads.accumulation));
    const int64_t step = g.step();
    for (int64_t begin = 0; begin < q.size(1); begin += step) {
      const int64_t count = std::min(step, q.size(1) - begin);
      const Selected selected = select_rows(g, begin, count);
      if (selected.index.numel() == 0) continue;
      const MaskedSoftmax softmax = masked_softmax_(logits_of(g, g.rows(q, begin, count), selected),
                                                    selected.padding.transpose(1, 2));
      const at::Tensor sum = g.heads.product(g.heads.to_product_type(softmax.weights), selected.v);
      g.store_rows(sum.div(softmax.denominator), begin, count, out);
      g.store_rows(softmax.lse, begin, count, lse);
    }
    lse = lse.squeeze(-1);
    ctx->save_for_backward({q, k, v, ranges});
    ctx->saved_data["first_position"] = first_position;
    ctx->saved_data["scale"] = scale;
    ctx->set_materialize_grads(false);
    return {out, lse};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "nsa::sel_attn: double backward is not supported; detach the gradient first");
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    const Gather g(q, k, v, saved[3], ctx->saved_data["first_position"].toInt(),
                   ctx->saved_data["scale"].toDouble());
    const auto options = q.options().dtype(g.heads.accumulation);
    const at::Tensor d_out =
        grads[0].defined() ? grads[0]
                           : at::zeros({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options());
    at::Tensor dq = at::zeros(q.sizes(), q.options());
    at::Tensor dk = at::zeros(g.k.sizes(), options), dv = at::zeros(g.v.sizes(), options);
    const int64_t step = g.step();
    for (int64_t begin = 0; begin < q.size(1); begin += step) {
      const int64_t count = std::min(step, q.size(1) - begin);
      const Selected selected = select_rows(g, begin, count);
      if (selected.index.numel() == 0) continue;
      const at::Tensor hidden = selected.padding.transpose(1, 2);
      const at::Tensor q_rows = g.rows(q, begin, count), d_rows = g.rows(d_out, begin, count);
      // Not through rows(): it stays in the accumulation type.
      const auto of_row = [&](const at::Tensor& x) {
        return x.narrow(1, begin, count)
            .unflatten(2, {g.heads.num_kv_heads, g.heads.group_size})
            .transpose(1, 2)
            .reshape({q_rows.size(0), g.heads.group_size, 1});
      };
      const at::Tensor probs =
          probabilities(masked_softmax_(logits_of(g, q_rows, selected), hidden), hidden);
      at::Tensor d_logits =
          g.heads.product(d_rows, selected.v.transpose(1, 2)).masked_fill_(hidden, 0.0);
      // From the probabilities, as in chunked_attention.cpp: out is rounded, and this cancels.
      at::Tensor delta = d_logits.mul(probs).sum(-1, /*keepdim=*/true);
      if (grads[1].defined()) delta.sub_(of_row(grads[1].unsqueeze(-1)));
      d_logits.sub_(delta).mul_(probs).mul_(g.scale).masked_fill_(hidden, 0.0);
      const at::Tensor d_low = g.heads.to_product_type(d_logits);
      g.store_rows(g.heads.product(d_low, selected.k), begin, count, dq);
      const auto add = [&](at::Tensor& total, const at::Tensor& a, const at::Tensor& b) {
        const at::Tensor part =
            g.heads.product(a.transpose(1, 2), b).masked_fill_(selected.padding, 0.0);
        total.index_put_({selected.index}, part.flatten(0, 1), /*accumulate=*/true);
      };
      add(dk, d_low, q_rows);
      add(dv, g.heads.to_product_type(probs), d_rows);
    }
    const int64_t matrices = g.heads.batch * g.heads.num_kv_heads;
    const auto shaped = [&](const at::Tensor& x, const at::Tensor& like) {
      return g.heads.from_keys(x.view({matrices, g.num_keys, x.size(1)}), like);
    };
    return {dq, shaped(dk, k), shaped(dv, v), {}, {}, {}};
  }
};

}  // namespace

std::pair<at::Tensor, at::Tensor> gathered_attention(const at::Tensor& q, const at::Tensor& k,
                                                     const at::Tensor& v, const at::Tensor& ranges,
                                                     int64_t first_position, double scale) {
  const variable_list result = GatheredAttention::apply(q, k, v, ranges, first_position, scale);
  return {result[0], result[1]};
}

}  // namespace nsa

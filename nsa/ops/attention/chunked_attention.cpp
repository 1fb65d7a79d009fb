#include "nsa/ops/attention/chunked_attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>

#include "nsa/diagnostics/nvtx_range.h"
#include "nsa/ops/attention/attention_chunks.h"
#include "nsa/ops/attention/masked_softmax.h"
#include "nsa/ops/common/check.h"

namespace nsa {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
/// Values of V copied at once when rows that attend a non-finite value are computed anew.
constexpr int64_t kPatchValues = int64_t{1} << 22;

at::Tensor without_non_finite(const at::Tensor& x) { return at::nan_to_num(x, 0.0, 0.0, 0.0); }

/// Scaled logits of a chunk, [B, Hkv, G, count, n], -inf where not allowed.
at::Tensor masked_logits(const GroupedHeads& heads, const at::Tensor& q_rows, const at::Tensor& k,
                         const QueryChunk& chunk, const at::Tensor& forbidden, double scale) {
  const at::Tensor keys = k.narrow(1, chunk.keys.begin, chunk.keys.end - chunk.keys.begin);
  const at::Tensor logits = heads.logits(q_rows, keys, scale);
  return heads.split(logits, chunk).masked_fill_(forbidden, kMinusInfinity);
}

/// Rows that attend a non-finite value of V, computed with forbidden values set to zero. The other
/// rows keep their bits: they were computed with every non-finite value replaced by 0.
void patch_non_finite(const GroupedHeads& heads, const at::Tensor& weights, const at::Tensor& v,
                      const at::Tensor& forbidden, const QueryChunk& chunk, at::Tensor& out) {
  const int64_t width = chunk.keys.end - chunk.keys.begin;
  const at::Tensor v_keys = v.narrow(1, chunk.keys.begin, width)
                                .view({heads.batch, heads.num_kv_heads, width, v.size(2)});
  const at::Tensor bad_key = v_keys.isfinite().all(-1).logical_not();  // [B, Hkv, n]
  const at::Tensor allowed = forbidden.logical_not()
                                 .expand({heads.batch, heads.num_kv_heads, 1, chunk.count, width})
                                 .squeeze(2);
  const at::Tensor rows = allowed.logical_and(bad_key.unsqueeze(2)).any(-1).nonzero();
  const int64_t step = std::max<int64_t>(1, kPatchValues / (width * v.size(2)));
  at::Tensor out_rows = heads.split(out, chunk);
  for (int64_t begin = 0; begin < rows.size(0); begin += step) {
    const auto part = rows.narrow(0, begin, std::min(step, rows.size(0) - begin)).unbind(1);
    const at::Tensor mask = allowed.index({part[0], part[1], part[2]}).unsqueeze(-1);
    const at::Tensor values =
        v_keys.index({part[0], part[1]}).masked_fill_(mask.logical_not(), 0.0);
    const at::Tensor row_weights =
        weights.permute({0, 1, 3, 2, 4}).index({part[0], part[1], part[2]});  // [rows, G, n]
    at::Tensor target = out_rows.permute({0, 1, 3, 2, 4});
    target.index_put_({part[0], part[1], part[2]},
                      heads.product(heads.to_product_type(row_weights), values));
  }
}

struct Problem {
  Problem(const at::Tensor& q_in, const at::Tensor& k_in, const KeyMask& mask_in, double scale_in)
      : q(q_in), heads(q_in, k_in), mask(mask_in), scale(scale_in), k(heads.keys(k_in)) {
    chunks = query_chunks(q_in, k_in, mask_in);
  }
  at::Tensor forbidden(const QueryChunk& chunk) const {
    return mask.allowed(chunk.begin, chunk.count, chunk.keys, q.device()).logical_not_();
  }
  static bool has_keys(const QueryChunk& chunk) { return chunk.keys.end > chunk.keys.begin; }

  at::Tensor q;
  GroupedHeads heads;
  KeyMask mask;
  double scale;
  at::Tensor k;  ///< [R, N, dk]
  std::vector<QueryChunk> chunks;
};

void store_group_probs(const Problem& problem, const MaskedSoftmax& softmax,
                       const QueryChunk& chunk, const at::Tensor& forbidden,
                       at::Tensor& group_probs) {
  const at::Tensor probs = probabilities(softmax, forbidden);
  at::Tensor sum = probs.select(2, 0);  // [B, Hkv, count, n]; a view that may be overwritten
  for (int64_t head = 1; head < problem.heads.group_size; ++head) sum.add_(probs.select(2, head));
  group_probs.narrow(1, chunk.begin, chunk.count)
      .narrow(3, chunk.keys.begin, chunk.keys.end - chunk.keys.begin)
      .copy_(sum.permute({0, 2, 1, 3}));
}

AttentionResult attention_forward(const Problem& problem, const at::Tensor& v_in,
                                  bool want_group_probs) {
  const at::Tensor& q = problem.q;
  const GroupedHeads& heads = problem.heads;
  const at::Tensor v = heads.keys(v_in);
  const at::Tensor v_clean = without_non_finite(v);
  const bool finite = v.is_meta() || v.numel() == 0 || v.isfinite().all().item<bool>();
  const auto options = q.options().dtype(accumulation_type(q.scalar_type()));
  AttentionResult result;
  result.out = at::zeros({q.size(0), q.size(1), q.size(2), v_in.size(3)}, q.options());
  at::Tensor lse = at::full({q.size(0), q.size(1), q.size(2), 1}, kMinusInfinity, options);
  if (want_group_probs) {
    result.group_probs =
        at::zeros({q.size(0), q.size(1), heads.num_kv_heads, problem.k.size(1)}, options);
  }
  for (const QueryChunk& chunk : problem.chunks) {
    if (!Problem::has_keys(chunk)) continue;
    const at::Tensor forbidden = problem.forbidden(chunk);
    const MaskedSoftmax softmax = masked_softmax_(
        masked_logits(heads, heads.rows(q, chunk), problem.k, chunk, forbidden, problem.scale),
        forbidden);
    const int64_t width = chunk.keys.end - chunk.keys.begin;
    const at::Tensor weights = heads.flatten(softmax.weights, chunk);
    at::Tensor out =
        heads.product(heads.to_product_type(weights), v_clean.narrow(1, chunk.keys.begin, width));
    if (!finite) patch_non_finite(heads, softmax.weights, v, forbidden, chunk, out);
    out.div_(heads.flatten(softmax.denominator, chunk));
    heads.store_rows(out, chunk, result.out);
    heads.store_rows(heads.flatten(softmax.lse, chunk), chunk, lse);
    if (want_group_probs) {
      store_group_probs(problem, softmax, chunk, forbidden, result.group_probs);
    }
  }
  result.lse = lse.squeeze(-1);
  return result;
}

/// Gradients of one chunk; adds to dk and dv [R, N, .], stores dq.
struct BackwardTensors {
  at::Tensor v, k_clean, d_out, d_lse;  // v, k_clean [R, N, .]; the rest like q
  at::Tensor dq, dk, dv;
};

void attention_backward_chunk(const Problem& problem, const QueryChunk& chunk, BackwardTensors& t) {
  const GroupedHeads& heads = problem.heads;
  const int64_t width = chunk.keys.end - chunk.keys.begin;
  const auto in_span = [&](const at::Tensor& x) { return x.narrow(1, chunk.keys.begin, width); };
  const auto in_rows = [&](const at::Tensor& x) { return heads.rows(x, chunk); };
  const at::Tensor forbidden = problem.forbidden(chunk);
  const at::Tensor q_rows = in_rows(problem.q), d_out = in_rows(t.d_out);
  const auto of_row = [&](const at::Tensor& x) {  // [B, S, Hq] -> [B, Hkv, G, count, 1]
    return x.narrow(1, chunk.begin, chunk.count)
        .reshape({heads.batch, chunk.count, heads.num_kv_heads, heads.group_size, 1})
        .permute({0, 2, 3, 1, 4});
  };
  const at::Tensor probs =  // NaN where no key is allowed
      masked_logits(heads, q_rows, problem.k, chunk, forbidden, problem.scale)
          .softmax(-1)
          .masked_fill_(forbidden, 0.0);
  const at::Tensor flat = heads.flatten(probs, chunk);
  in_span(t.dv).add_(heads.product(heads.to_product_type(flat).transpose(1, 2), d_out));
  at::Tensor d_logits = heads.split(heads.product(d_out, in_span(t.v).transpose(1, 2)), chunk);
  d_logits.masked_fill_(forbidden, 0.0);
  d_logits =
      logit_gradients(d_logits, probs, t.d_lse.defined() ? of_row(t.d_lse) : t.d_lse, forbidden);
  const at::Tensor d_flat = heads.to_product_type(heads.flatten(d_logits, chunk));
  heads.store_rows(heads.product(d_flat, in_span(t.k_clean)).mul_(problem.scale), chunk, t.dq);
  in_span(t.dk).add_(heads.product(d_flat.transpose(1, 2), without_non_finite(q_rows)));
}

/// Each branch has a mask of its own.
const char* backward_range(KeyMask::Kind kind) {
  if (kind == KeyMask::kWindow) return "nsa.win_attn.backward";
  return kind == KeyMask::kRanges ? "nsa.sel_attn.backward" : "nsa.cmp_attn.backward";
}

struct ChunkedAttention : torch::autograd::Function<ChunkedAttention> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const KeyMask& mask, double scale,
                               bool want_group_probs) {
    const AttentionResult result =
        attention_forward(Problem(q, k, mask, scale), v, want_group_probs);
    ctx->save_for_backward({q, k, v, mask.ranges});
    ctx->saved_data["kind"] = static_cast<int64_t>(mask.kind);
    ctx->saved_data["first_position"] = mask.first_position;
    ctx->saved_data["extent"] = mask.extent;
    ctx->saved_data["stride"] = mask.stride;
    ctx->saved_data["scale"] = scale;
    ctx->set_materialize_grads(false);
    if (!want_group_probs) return {result.out, result.lse};
    ctx->mark_non_differentiable({result.group_probs});
    return {result.out, result.lse, result.group_probs};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "nsa::attention: double backward is not supported; detach the gradient first");
    const auto kind = static_cast<KeyMask::Kind>(ctx->saved_data["kind"].toInt());
    const NvtxRange range(backward_range(kind));
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    const KeyMask mask{kind, ctx->saved_data["first_position"].toInt(),
                       ctx->saved_data["extent"].toInt(), ctx->saved_data["stride"].toInt(),
                       saved[3]};
    const AttentionGradients g = chunked_attention_backward(
        q, k, v, mask, ctx->saved_data["scale"].toDouble(), grads[0], grads[1]);
    return {g.q, g.k, g.v, {}, {}, {}};
  }
};

}  // namespace

AttentionResult chunked_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const KeyMask& mask, double scale, bool want_group_probs) {
  const variable_list result = ChunkedAttention::apply(q, k, v, mask, scale, want_group_probs);
  return {result[0], result[1], want_group_probs ? result[2] : at::Tensor()};
}

AttentionGradients chunked_attention_backward(const at::Tensor& q, const at::Tensor& k,
                                              const at::Tensor& v, const KeyMask& mask,
                                              double scale, const at::Tensor& d_out,
                                              const at::Tensor& d_lse) {
  const Problem problem(q, k, mask, scale);
  const auto options = q.options().dtype(problem.heads.sums);
  const at::Tensor v_keys = problem.heads.keys(v);
  BackwardTensors t{v_keys,
                    without_non_finite(problem.k),
                    d_out.defined()
                        ? d_out
                        : at::zeros({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options()),
                    d_lse,
                    at::zeros(q.sizes(), q.options()),
                    at::zeros(problem.k.sizes(), options),
                    at::zeros(v_keys.sizes(), options)};
  for (const QueryChunk& chunk : problem.chunks) {
    if (Problem::has_keys(chunk)) attention_backward_chunk(problem, chunk, t);
  }
  return {t.dq, problem.heads.from_keys(t.dk.mul_(problem.scale), k),
          problem.heads.from_keys(t.dv, v)};
}

namespace {

/// visit(softmax, chunk, forbidden) for every chunk that has keys; no values, no host
/// synchronisation.
template <typename Visit>
void for_each_softmax(const Problem& problem, const Visit& visit) {
  const at::NoGradGuard no_grad;
  for (const QueryChunk& chunk : problem.chunks) {
    if (!Problem::has_keys(chunk)) continue;
    const at::Tensor forbidden = problem.forbidden(chunk);
    visit(masked_softmax_(masked_logits(problem.heads, problem.heads.rows(problem.q, chunk),
                                        problem.k, chunk, forbidden, problem.scale),
                          forbidden),
          chunk, forbidden);
  }
}

at::Tensor no_probs(const at::Tensor& q, const at::Tensor& k, int64_t heads) {
  return at::zeros({q.size(0), q.size(1), heads, k.size(1)},
                   q.options().dtype(accumulation_type(q.scalar_type())));
}

}  // namespace

at::Tensor group_probs(const at::Tensor& q, const at::Tensor& k, const KeyMask& mask,
                       double scale) {
  const Problem problem(q.detach(), k.detach(), mask, scale);
  at::Tensor sums = no_probs(q, k, k.size(2));
  for_each_softmax(problem, [&](const MaskedSoftmax& softmax, const QueryChunk& chunk,
                                const at::Tensor& forbidden) {
    store_group_probs(problem, softmax, chunk, forbidden, sums);
  });
  return sums;
}

at::Tensor attention_probs(const at::Tensor& q, const at::Tensor& k, const KeyMask& mask,
                           double scale) {
  const Problem problem(q.detach(), k.detach(), mask, scale);
  const GroupedHeads& heads = problem.heads;
  at::Tensor probs = no_probs(q, k, q.size(2));
  for_each_softmax(problem, [&](const MaskedSoftmax& softmax, const QueryChunk& chunk,
                                const at::Tensor& forbidden) {
    probs.narrow(1, chunk.begin, chunk.count)
        .narrow(3, chunk.keys.begin, chunk.keys.end - chunk.keys.begin)
        .unflatten(2, {heads.num_kv_heads, heads.group_size})
        .copy_(probabilities(softmax, forbidden).permute({0, 3, 1, 2, 4}));
  });
  return probs;
}

}  // namespace nsa

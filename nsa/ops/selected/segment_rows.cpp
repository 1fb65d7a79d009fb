#include "nsa/ops/selected/segment_rows.h"

#include <ATen/ATen.h>

namespace nsa {
namespace {

/// Reduces x [total, ...] over the segments -> [n, ...].
at::Tensor reduce(const at::Tensor& x, const char* how, const at::Tensor& length) {
  const at::Tensor flat = x.flatten(1).contiguous();
  const at::Tensor result = at::segment_reduce(flat, how, length, /*indices=*/{}, /*offsets=*/{},
                                               /*axis=*/0, /*unsafe=*/true);
  std::vector<int64_t> shape = x.sizes().vec();
  shape[0] = length.size(0);
  return result.view(shape);
}

/// Softmax over the segments in the type of sums.
struct SegmentSoftmax {
  SegmentSoftmax(const RowProblem& problem, const Segments& s)
      : row(at::repeat_interleave(at::arange(s.length.size(0), s.length.options()), s.length, 0,
                                  s.index.size(0))),
        q(s.q.to(problem.heads.sums).index_select(0, row)),
        k(s.k.to(problem.heads.sums)),
        v(s.v.to(problem.heads.sums)) {
    // Not bmm: cuBLAS takes 65535 matrices at most.
    const at::Tensor logits = q.mul(k.unsqueeze(1)).sum(-1).mul_(problem.scale);
    const at::Tensor peak = reduce(logits, "max", s.length);
    weights = logits.sub(peak.index_select(0, row)).exp_();
    denominator = reduce(weights, "sum", s.length);
    lse = denominator.log().add_(peak);
  }

  at::Tensor row;               ///< [total] the row of each key
  at::Tensor q;                 ///< [total, G, dk] the query of each key
  at::Tensor k, v;              ///< [total, D]
  at::Tensor weights;           ///< [total, G]
  at::Tensor denominator, lse;  ///< [n, G]
};

}  // namespace

Segments make_segments(const RowProblem& problem, const RowBatch& batch) {
  const at::Tensor tokens = flat_tokens(problem.tokens, batch.rows, batch.total);
  const at::Tensor length = problem.tokens.length.index_select(0, batch.rows);
  const at::Tensor row = at::repeat_interleave(batch.rows, length, 0, batch.total);
  const at::Tensor index = problem.key_index(row, tokens);
  return {problem.q.index_select(0, batch.rows), length, index, problem.k.index_select(0, index),
          problem.v.index_select(0, index)};
}

RowOutputs segment_forward(const RowProblem& problem, const RowBatch& batch) {
  const Segments s = make_segments(problem, batch);
  const SegmentSoftmax softmax(problem, s);
  const at::Tensor sum =
      reduce(softmax.weights.unsqueeze(-1).mul(softmax.v.unsqueeze(1)), "sum", s.length);
  return {sum.div(softmax.denominator.unsqueeze(-1)), softmax.lse.unsqueeze(-1)};
}

RowGradients segment_backward(const RowProblem& problem, const RowBatch& batch,
                              const RowUpstream& upstream) {
  const Segments s = make_segments(problem, batch);
  const SegmentSoftmax softmax(problem, s);
  const at::Tensor probs =
      softmax.weights.div(softmax.denominator.index_select(0, softmax.row)).unsqueeze(-1);
  const at::Tensor d_out =
      upstream.d_out.to(problem.heads.sums).index_select(0, softmax.row);  // [total, G, dv]
  const at::Tensor d_probs =
      d_out.mul(softmax.v.unsqueeze(1)).sum(-1, /*keepdim=*/true);  // [total, G, 1]
  at::Tensor delta = reduce(d_probs.mul(probs), "sum", s.length);   // [n, G, 1]
  if (upstream.d_lse.defined()) delta.sub_(upstream.d_lse);
  const at::Tensor d_logits =
      d_probs.sub(delta.index_select(0, softmax.row)).mul_(probs).mul_(problem.scale);
  return {reduce(d_logits.mul(softmax.k.unsqueeze(1)), "sum", s.length), s.index,
          d_logits.mul(softmax.q).sum(1), probs.mul(d_out).sum(1)};
}

}  // namespace nsa

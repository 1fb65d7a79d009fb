#include "nsa/ops/selected/padded_rows.h"

#include <ATen/ATen.h>

#include <limits>

#include "nsa/ops/attention/masked_softmax.h"

namespace nsa {
namespace {

struct Gathered {
  at::Tensor q;        ///< [n, G, dk]
  at::Tensor index;    ///< [n * longest] places in RowProblem::k
  at::Tensor padding;  ///< [n, longest, 1] true behind the end of a row
  at::Tensor hidden;   ///< the same as [n, 1, longest]
  at::Tensor k, v;     ///< [n, longest, D]
};

/// x[index] as [n, longest, D] with zeros where padded; in `buffer` when there is one.
at::Tensor gather(const at::Tensor& x, const Gathered& rows, const at::Tensor& buffer) {
  at::Tensor found;
  if (buffer.defined()) {
    found = buffer.narrow(0, 0, rows.index.size(0));
    at::index_select_out(found, x, 0, rows.index);
  } else {
    found = x.index_select(0, rows.index);
  }
  return found.view({rows.padding.size(0), rows.padding.size(1), x.size(1)})
      .masked_fill_(rows.padding, 0.0);
}

Gathered gather_batch(const RowProblem& problem, const RowBatch& batch,
                      const RowWorkspace& workspace) {
  const at::Tensor tokens = padded_tokens(problem.tokens, batch.rows, batch.longest);
  const at::Tensor length = problem.tokens.length.index_select(0, batch.rows).unsqueeze(1);
  Gathered rows;
  rows.q = problem.q.index_select(0, batch.rows);
  rows.index = problem.key_index(batch.rows.unsqueeze(1), tokens).flatten();
  const at::Tensor padded = at::arange(batch.longest, length.options()).ge(length);
  rows.padding = padded.unsqueeze(2);
  rows.hidden = padded.unsqueeze(1);
  rows.k = gather(problem.k, rows, workspace.k);
  rows.v = gather(problem.v, rows, workspace.v);
  return rows;
}

MaskedSoftmax softmax_of(const RowProblem& problem, const Gathered& rows) {
  at::Tensor logits = problem.heads.product(rows.q, rows.k.transpose(1, 2)).mul_(problem.scale);
  logits.masked_fill_(rows.hidden, -std::numeric_limits<double>::infinity());
  return masked_softmax_(logits, rows.hidden);
}

}  // namespace

RowOutputs padded_forward(const RowProblem& problem, const RowBatch& batch,
                          const RowWorkspace& workspace) {
  const Gathered rows = gather_batch(problem, batch, workspace);
  const MaskedSoftmax softmax = softmax_of(problem, rows);
  const GroupedHeads& heads = problem.heads;
  const at::Tensor sum = heads.product(heads.to_product_type(softmax.weights), rows.v);
  return {sum.div(softmax.denominator), softmax.lse};
}

RowGradients padded_backward(const RowProblem& problem, const RowBatch& batch,
                             const RowUpstream& upstream) {
  const Gathered rows = gather_batch(problem, batch, {});
  const GroupedHeads& heads = problem.heads;
  const at::Tensor probs = probabilities(softmax_of(problem, rows), rows.hidden);
  const at::Tensor d_logits = logit_gradients(
      heads.product(upstream.d_out, rows.v.transpose(1, 2)).masked_fill_(rows.hidden, 0.0), probs,
      upstream.d_lse, rows.hidden);
  const at::Tensor d_low = heads.to_product_type(d_logits.mul(problem.scale));
  const auto of_keys = [&](const at::Tensor& a, const at::Tensor& b) {
    return heads.product(a.transpose(1, 2), b).masked_fill_(rows.padding, 0.0).flatten(0, 1);
  };
  return {heads.product(d_low, rows.k), rows.index, of_keys(d_low, rows.q),
          of_keys(heads.to_product_type(probs), upstream.d_out)};
}

}  // namespace nsa

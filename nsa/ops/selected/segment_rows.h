#pragma once
#include "nsa/ops/selected/row_method.h"

namespace nsa {

/// The keys of a batch, one row behind the other: what a packed attention call takes.
struct Segments {
  at::Tensor q;       ///< [n, G, dk]
  at::Tensor length;  ///< [n] int64
  at::Tensor index;   ///< [total] places in RowProblem::k
  at::Tensor k, v;    ///< [total, D]
};
Segments make_segments(const RowProblem& problem, const RowBatch& batch);

/// Rows of a batch as segments of one flat list, without padding: reductions over segments, made
/// of ATen operations in the type of sums.
RowOutputs segment_forward(const RowProblem& problem, const RowBatch& batch);
RowGradients segment_backward(const RowProblem& problem, const RowBatch& batch,
                              const RowUpstream& upstream);

}  // namespace nsa

#pragma once
#include "nsa/ops/selected/row_method.h"

namespace nsa {

/// Rows of a batch padded to the longest: gathered keys [n, longest, dk], dense products. A padded
/// place has value 0 and logit -inf.
RowOutputs padded_forward(const RowProblem& problem, const RowBatch& batch,
                          const RowWorkspace& workspace = {});
RowGradients padded_backward(const RowProblem& problem, const RowBatch& batch,
                             const RowUpstream& upstream);

}  // namespace nsa

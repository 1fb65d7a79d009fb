#pragma once
#include "nsa/kernels/selected/rows/row_attention.h"
#include "nsa/kernels/selected/selected_plan.h"

namespace nsa::kernels::portable {

/// out and lse of the tokens of a set from their parts, in the order of the row's tiles.
/// `tokens_of_batch`: from one sequence of out and lse to the next.
cudaError_t join_parts(const RowAttention& p, int tokens_of_batch, const SelectedPlan& plan,
                       void* workspace, int set, cudaStream_t stream);

}  // namespace nsa::kernels::portable

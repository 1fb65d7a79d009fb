#pragma once
#include "nsa/kernels/selected/selected_backward.h"
#include "nsa/kernels/selected/selected_plan.h"
#include "nsa/kernels/selected/sm90/selected_early_launch.h"

/// What precedes and follows the products of the selected branch's backward pass.
namespace nsa::kernels::portable {

/// Fills [B, S, Hq] pairs: lse in base 2 (NaN where lse or d_out of the row is not finite) and
/// delta = sum(d_out * out) - d_lse.
cudaError_t row_stats(const SelectedBackward& p, float* stats, cudaStream_t stream);

/// What follows the products of a set: d_q of its tokens from its parts, in the order of the row's
/// tiles, then from what joins them (`tokens_of_batch`: from one sequence of d_q to the next); and
/// the set's slots of each tile, in order, added to the sums of the sets before it, or to those of
/// the whole tiles. The last set of a head writes d_k and d_v.
cudaError_t sum_set(const SelectedBackward& p, int tokens_of_batch,
                    const sm90::SelectedEarly& early, const SelectedPlan& plan, void* workspace,
                    int set, cudaStream_t stream);

/// d_k and d_v where all queries were computed in whole tiles.
cudaError_t sum_early_slots(const SelectedBackward& p, const sm90::SelectedEarly& early,
                            cudaStream_t stream);

}  // namespace nsa::kernels::portable

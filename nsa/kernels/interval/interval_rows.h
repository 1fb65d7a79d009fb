#pragma once
#include "nsa/kernels/interval/sm90/interval_backward_launch.h"

/// What stands before and behind the products of the backward pass of interval attention, on every
/// card.
namespace nsa::kernels::portable {

/// lse and delta of the plan; clears `bad`.
cudaError_t prepare_rows(const IntervalBackward&, const sm90::BackwardPlan&, cudaStream_t);
/// d_k and d_v from partial sums, where the plan has several; then gradients that are not finite
/// once more, from attended pairs only.
cudaError_t finish_gradients(const IntervalBackward&, const sm90::BackwardPlan&, cudaStream_t);

}  // namespace nsa::kernels::portable

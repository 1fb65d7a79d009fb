#pragma once
#include "nsa/kernels/selected/selected_backward.h"
#include "nsa/kernels/selected/selected_plan.h"

/// One function per instantiation of the products of the selected branch's backward pass:
/// selected_backward_DK_DV_(type). `tokens_of_batch`: from one sequence of stats to the next; `set`
/// counts the sets of the plan.
namespace nsa::kernels::sm90 {

using SelectedBackwardLaunch = cudaError_t (*)(const SelectedBackward&, int tokens_of_batch,
                                               const SelectedPlan&, void* workspace, int set,
                                               cudaStream_t);

#define NSA_DECLARE_SELECTED(dims)                                                               \
  cudaError_t selected_backward_##dims##_bf16(const SelectedBackward&, int, const SelectedPlan&, \
                                              void*, int, cudaStream_t);                         \
  cudaError_t selected_backward_##dims##_fp16(const SelectedBackward&, int, const SelectedPlan&, \
                                              void*, int, cudaStream_t)
NSA_DECLARE_SELECTED(64_64);
NSA_DECLARE_SELECTED(128_128);
NSA_DECLARE_SELECTED(192_128);
#undef NSA_DECLARE_SELECTED

}  // namespace nsa::kernels::sm90

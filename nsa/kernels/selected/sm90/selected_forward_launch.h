#pragma once
#include "nsa/kernels/selected/rows/row_attention.h"
#include "nsa/kernels/selected/selected_plan.h"

/// One function per instantiation of the products of the selected branch's forward pass in the
/// order of keys: selected_forward_DK_DV_(type). `set` counts the sets of the plan.
namespace nsa::kernels::sm90 {

using SelectedForwardLaunch = cudaError_t (*)(const RowAttention&, const SelectedPlan&,
                                              void* workspace, int set, cudaStream_t);

#define NSA_DECLARE_SELECTED(dims)                                                                 \
  cudaError_t selected_forward_##dims##_bf16(const RowAttention&, const SelectedPlan&, void*, int, \
                                             cudaStream_t);                                        \
  cudaError_t selected_forward_##dims##_fp16(const RowAttention&, const SelectedPlan&, void*, int, \
                                             cudaStream_t)
NSA_DECLARE_SELECTED(64_64);
NSA_DECLARE_SELECTED(128_128);
NSA_DECLARE_SELECTED(192_128);
#undef NSA_DECLARE_SELECTED

}  // namespace nsa::kernels::sm90

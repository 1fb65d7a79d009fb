#pragma once
#include <type_traits>

#include "nsa/kernels/selected/sm90/selected_backward_launch.h"

/// One function per instantiation of the products of the selected branch's backward pass, as those
/// of sm_90, by code of sm_80.
namespace nsa::kernels::sm80 {

using sm90::SelectedBackwardLaunch;
using SelectedBackwardFunction = std::remove_pointer_t<SelectedBackwardLaunch>;
SelectedBackwardFunction selected_backward_64_64_bf16, selected_backward_64_64_fp16,
    selected_backward_128_128_bf16, selected_backward_128_128_fp16, selected_backward_192_128_bf16,
    selected_backward_192_128_fp16, selected_backward_256_256_bf16, selected_backward_256_256_fp16;

}  // namespace nsa::kernels::sm80

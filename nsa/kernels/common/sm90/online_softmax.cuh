// Softmax over keys that come tile by tile, in the registers of a wgmma accumulator.
#pragma once
#include <cute/tensor.hpp>

#include "nsa/kernels/common/online_softmax.cuh"

namespace nsa::device::sm90 {

using sm80::fast_exp2;
using sm80::OnlineSoftmax;

}  // namespace nsa::device::sm90

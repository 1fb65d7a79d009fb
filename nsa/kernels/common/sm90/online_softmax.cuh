// Softmax over keys that come tile by tile, in the registers of a wgmma accumulator.
#pragma once
#include <cute/tensor.hpp>

#include "nsa/kernels/common/online_softmax.cuh"

namespace nsa::kernels::sm90 {

using portable::fast_exp2;
using portable::OnlineSoftmax;

}  // namespace nsa::kernels::sm90

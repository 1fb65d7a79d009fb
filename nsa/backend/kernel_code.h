#pragma once
#include <ATen/core/Tensor.h>

#include <string>

#include "nsa/kernels/interval/interval_attention.h"

namespace nsa {

/// Which code of backend `fused` the process runs (switch NSA_KERNELS): "auto", the best that the
/// card has; "sm80", mma.sync and cp.async on any card from compute capability 8.0 on. Set before
/// operators are called: a forward pass and its backward pass must run the same code.
/// Throws std::invalid_argument on another word, and on "sm80" where no kernel can run: on a
/// `device` that is no GPU and in a build without CUDA code.
void want_kernels(const std::string& code, at::Device device);

/// Empty where a card of compute capability 8 lets a block of threads have the shared memory that
/// the code of sm_80 takes; else why not.
std::string sm80_obstacle(size_t shared_bytes_of_block);
/// Empty where kernels of intervals and tiles of keys run on the card of q; else why not.
std::string tile_kernel_obstacle(const at::Tensor& q);
/// The detail that a record has of a call without an obstacle: "sm_80" where that code runs, on any
/// card, "" for the code of sm_90.
std::string tile_kernel_detail(const at::Tensor& q);

/// The code that tile_kernel_obstacle allowed. Builds with CUDA code only.
kernels::Code tile_kernel_code(const at::Tensor& q);

}  // namespace nsa

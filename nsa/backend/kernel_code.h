#pragma once
#include <ATen/core/Tensor.h>

#include <string>

#include "nsa/backend/kernel_choice.h"
#include "nsa/kernels/interval/interval_attention.h"

namespace nsa {

/// Which code of backend `fused` the process runs (switch NSA_KERNELS): "auto", the best that the
/// card has; "sm80", mma.sync and cp.async on any card that the build has machine code for. Calls
/// made from now on run it; the backward pass of an earlier call runs what that call ran.
/// Throws std::invalid_argument on another word, and on "sm80" where no kernel can run: on a
/// `device` that is no GPU and in a build without CUDA code.
void want_kernels(const std::string& code, at::Device device);

/// choose_kernel for tensors like q on its device, with the code that the process wants; the type
/// of `call` is that of q.
KernelChoice choose_kernel(const at::Tensor& q, KernelCall call);

/// Whether the kernels of the tokens' family run for tensors like x.
bool token_kernels_run(const at::Tensor& x);

/// The code that a launcher is to enqueue; only of a choice that runs.
kernels::Code launched_code(KernelCode code);

}  // namespace nsa

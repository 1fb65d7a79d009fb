#pragma once
#include <vector>

#include "nsa/layer/batched.h"

namespace nsa {

/// gradients_of_steps (fused/fused_call.h) by the CPU kernels, for a call that they computed: no
/// branch is attended once more. Rotation, compression and gates, which are linear in S, are
/// computed again for their own gradients. Takes part in no graph of the caller's.
std::vector<at::Tensor> cpu_gradients_of_steps(const NsaInputs& inputs, const NsaConfig& config,
                                               Steps steps, const at::Tensor& d_o, bool compressed,
                                               bool branches);

}  // namespace nsa

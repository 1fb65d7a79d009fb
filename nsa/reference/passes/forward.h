#pragma once
#include "nsa/reference/inputs.h"

namespace nsa::reference {

/// The whole forward pass over batched tensors, stage by stage (batched mode: training, prefill).
/// B = 0 and S = 0 are legal. Throws std::invalid_argument naming the first bad input.
/// Cost: O(B S Hq (N_c + n l' + w) (dk + dv)), memory for every stage's output.
Outputs forward(const Config& config, const Inputs& inputs, const Given& given = {});

/// x [B,S,H,dk] as the attention takes it: `given` where a caller gave the rotated tensor, else x
/// rotated to its positions, unless the configuration has no RoPE.
Tensor<double> rotated(const Config& config, const Tensor<double>& x, const Tensor<double>& given);

}  // namespace nsa::reference

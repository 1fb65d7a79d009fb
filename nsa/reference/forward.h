#pragma once
#include "nsa/reference/inputs.h"

namespace nsa::reference {

/// The whole forward pass over batched tensors, stage by stage (batched mode: training, prefill).
/// B = 0 and S = 0 are legal. Throws std::invalid_argument naming the first bad input.
/// Cost: O(B S Hq (N_c + n l' + w) (dk + dv)), memory for every stage's output.
Outputs forward(const Config& config, const Inputs& inputs, const Given& given = {});

}  // namespace nsa::reference

#pragma once
#include "nsa/reference/inputs.h"

namespace nsa::reference {

/// Sequential mode: for every t a fresh evaluation that sees the inputs of tokens 0..t and nothing
/// else, and keeps no state. Bit-equal to `forward`.
Outputs sequential(const Config& config, const Inputs& inputs);

}  // namespace nsa::reference

#pragma once
#include "nsa/decode/decode_outputs.h"

namespace nsa {

/// Sequential mode (docs/semantics.md, Modes): every token alone, by calls with one query that read
/// the inputs of tokens 0..t and keep no state. Arguments, outputs and errors as nsa_attention, for
/// batched inputs. Differentiable. Work grows with S^2.
NsaOutputs sequential_attention(const NsaInputs& inputs, const NsaConfig& config,
                                const NsaOptions& options = {});

}  // namespace nsa

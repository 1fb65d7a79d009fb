#pragma once
#include "nsa/layer/nsa_attention.h"

namespace nsa {

/// Standard-normal inputs of `config` for tests and benchmarks, from at::manual_seed's generator;
/// gate logits have one row a query head. `packed` drops the batch axis (batch must be 1).
NsaInputs random_inputs(const NsaConfig& config, int64_t batch, int64_t num_tokens,
                        at::TensorOptions options = {}, bool packed = false);

/// The differentiable members that are defined: names as in docs/semantics.md, Tensor files.
std::vector<std::pair<std::string, at::Tensor*>> differentiable(NsaInputs& inputs);

}  // namespace nsa

#pragma once
#include <functional>

#include "nsa/layer/nsa_attention.h"

namespace nsa {

/// Throws c10::Error `nsa::<op>: <argument> must be <want>, got <have>` unless the batched inputs
/// fit each other and the configuration: ranks, sizes, one float type, one device.
void check_inputs(const char* op, const NsaInputs& inputs, const NsaConfig& config);

/// The inputs with `f` applied to every tensor that has one row a token; weights are shared.
NsaInputs map_tokens(const NsaInputs& inputs,
                     const std::function<at::Tensor(const at::Tensor&)>& f);

/// The options with `f` applied to their per-token tensor, a given block_idx.
NsaOptions map_tokens(const NsaOptions& options,
                      const std::function<at::Tensor(const at::Tensor&)>& f);

/// Tokens [begin, begin + count) of every sequence: views.
NsaInputs narrow_tokens(const NsaInputs& inputs, int64_t begin, int64_t count);

}  // namespace nsa

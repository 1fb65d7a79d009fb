#pragma once
#include "nsa/api/attention_call.h"

namespace nsa {

/// Refuses a call by the caller's names for its arguments: c10::ValueError for the configuration,
/// c10::NotImplementedError for what no code covers, c10::Error `nsa::attention: NAME must be ...`
/// for tensors. Reads sizes, types and devices only, so that Meta kernels refuse alike.
void check_attention(const AttentionCall& call);

/// The part of it that concerns config.phi, which is no argument of the operators.
void check_compression(const AttentionCall& call);
/// The part of it that a dispatcher needs: all required tensors are there.
void check_presence(const AttentionCall& call);

}  // namespace nsa

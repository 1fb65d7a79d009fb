#pragma once
#include "nsa/api/attention_call.h"

namespace nsa {

/// Refuses a call by the caller's names for its arguments: c10::ValueError for the configuration,
/// c10::NotImplementedError for what no code covers, c10::Error `nsa::attention: NAME must be ...`
/// for tensors. Reads sizes, types and devices only, so that Meta kernels refuse alike.
void check_attention(const AttentionCall& call);

}  // namespace nsa

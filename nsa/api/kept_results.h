#pragma once
#include <bitset>
#include <vector>

#include "nsa/api/attention_call.h"
#include "nsa/layer/batched.h"

/// What a batched forward operator leaves for its backward operator: rotated q, k_sel and k_win,
/// k_cmp, v_cmp, ranges, then outputs and log-sum-exp of the three branches. An entry that is
/// an argument of the call, or the same as another, is a tensor of no elements. Shapes depend on
/// the call alone, not on what computed it.
namespace nsa {

std::vector<at::Tensor> kept_results(const AttentionCall& call, const Steps& steps);
/// The same on the Meta device, dynamic sizes too.
std::vector<at::Tensor> kept_meta(const AttentionCall& call);

/// Gradients of the tensors of a call, in their order, from `kept` and d_o, by the kernels;
/// undefined where not `wanted`. Empty where the kernels do not cover the call.
std::vector<at::Tensor> kept_gradients(const AttentionCall& call,
                                       const std::vector<at::Tensor>& kept, const at::Tensor& d_o,
                                       const std::bitset<kCallTensors.size()>& wanted);

}  // namespace nsa

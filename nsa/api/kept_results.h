#pragma once
#include <bitset>
#include <optional>
#include <vector>

#include "nsa/api/attention_call.h"
#include "nsa/layer/batched.h"
#include "nsa/layer/fused/packed_tables.h"

/// What a forward operator leaves for its backward operator: rotated q, k_sel and k_win,
/// k_cmp, v_cmp, ranges, then outputs and log-sum-exp of the three branches; without those that are
/// an argument of the call or the same as another. Number and shapes depend on the call alone, not
/// on what computed it.
namespace nsa {

/// Whether two outputs of branches are left for three (GatedSum::keeps_two): the backward operator
/// then takes the output o behind what was kept.
bool keeps_two(const AttentionCall& call);

std::vector<at::Tensor> kept_results(const AttentionCall& call, const Steps& steps);
/// The same on the Meta device, dynamic sizes too.
std::vector<at::Tensor> kept_meta(const AttentionCall& call);

/// Zeros of these shapes, where a call was computed by what keeps nothing.
std::vector<at::Tensor> kept_blanks(const AttentionCall& call);

/// The kernels of a call of packed documents, all documents at once; none where they do not cover
/// it, which is recorded (stage "packed"), and under autograd. Where it gives kernels the forward
/// pass leaves results: the answer is the same for forward and backward operator. `checks_offsets`:
/// cu_seqlens that lie on the host, or for which there is no bound, are read and refused if bad.
std::optional<PackedKernels> packed_kernels(const AttentionCall& call, bool checks_offsets);

/// Gradients of the tensors of a call, in their order, from `kept` and d_o, by the kernels;
/// undefined where not `wanted`. Empty where the kernels do not cover the call. Throws
/// c10::ValueError for another number of results. Results that `kept` alone holds are let go of on
/// the way.
std::vector<at::Tensor> kept_gradients(const AttentionCall& call, std::vector<at::Tensor> kept,
                                       const at::Tensor& d_o,
                                       const std::bitset<kCallTensors.size()>& wanted);

}  // namespace nsa

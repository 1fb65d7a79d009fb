#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <initializer_list>
#include <string>
#include <utility>

namespace nsa {

// What NSA_STRICT_ASSERTS=1 adds to a call. Everything here synchronises with the device.

using BranchResult = std::pair<at::Tensor, at::Tensor>;  ///< out, lse

/// `result` of `backend`, or, where its output is not finite although all `inputs` are, that of
/// `recompute`, which runs `fallback`; the record then has a row whose reason begins with REROUTED.
/// Where `fallback` is `backend` there is nothing else to run: a row of stage `<stage>.assert`.
BranchResult rerouted_if_not_finite(const char* stage, const BranchResult& result,
                                    std::initializer_list<at::Tensor> inputs,
                                    const std::string& backend, const std::string& fallback,
                                    const std::function<BranchResult()>& recompute);

/// Throws c10::Error unless every interval [B, S, Hkv, K, 2] ends at t + 1 or before, t = 0..S-1.
void check_causal_ranges(const at::Tensor& ranges);
/// Throws c10::Error unless every id [B, S, Hkv, n] is at most floor(t / l').
void check_causal_blocks(const at::Tensor& block_idx, int64_t sel_block_size);

}  // namespace nsa

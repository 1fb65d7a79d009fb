#pragma once
#include "suites/bench/targets/target_bench.h"

namespace suites {

/// MiniMax Sparse Attention in the sizes of its paper (64 query and 4 KV heads, d 128, blocks of
/// 128, 16 of them, an index 128 wide) at 32k to 128k tokens in bf16, beside the library's dense
/// attention. Outputs and gradients of a short sequence against the oracle, then, of the sequence
/// that is timed, choice and outputs of drawn rows against fp64. A row has `forward`, `backward`
/// and `given_blocks`, the forward pass without the choice. As run_target_bench otherwise.
nlohmann::json run_msa_bench(at::Device device, const TargetBenchOptions& options);

}  // namespace suites

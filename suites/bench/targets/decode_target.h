#pragma once
#include "suites/bench/targets/target_bench.h"

namespace suites {

/// Every case of decode_cases() on `device` in bf16: a step behind a context, one launch on CUDA.
/// First whether steps are right (chosen rows against the fp64 oracle, every sequence of a batch
/// like the first), then the time of a step in a CUDA graph of 20 and in one of its own, that hot
/// and cold. On a CPU: the plain step, correctness only. As run_target_bench otherwise.
nlohmann::json run_decode_bench(at::Device device, const TargetBenchOptions& options);

}  // namespace suites

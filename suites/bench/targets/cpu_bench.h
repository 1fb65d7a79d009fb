#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>

#include "suites/bench/targets/target_bench.h"

namespace suites {

/// The CPU kernels at the sizes of cpu_cases(), in fp32 and bf16, on all threads of ATen: rows of
/// the whole length and gradients against the fp64 oracle, then `pairs` pairs of a forward and a
/// backward call, alternately with dense causal attention of LibTorch on the same q, K and V (in
/// the same type; in bf16 also in fp32). Decode steps follow (cpu_decode_bench.h). A case that is
/// wrong, or does not fit into memory (`not_run`), has no times. Cases and pairs of
/// `options.earlier` stay; the first are not run again where they are complete.
nlohmann::json run_cpu_bench(const TargetBenchOptions& options, int64_t pairs);

}  // namespace suites

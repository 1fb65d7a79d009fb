#pragma once
#include <nlohmann/json.hpp>

#include "suites/bench/targets/target_bench.h"

namespace suites {

/// Decode steps of one sequence behind the contexts of cpu_cases() on a CPU, in fp32 and bf16: some
/// steps against the fp64 oracle, then `pairs` pairs of a step and of dense attention of one query
/// by LibTorch over the same number of keys. Adds one case each to `report`.
void add_cpu_decode_cases(const TargetBenchOptions& options, int64_t pairs, nlohmann::json& report);

}  // namespace suites

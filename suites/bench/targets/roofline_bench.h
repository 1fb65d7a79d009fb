#pragma once
#include <nlohmann/json.hpp>

#include "suites/bench/targets/target_bench.h"

namespace suites {

/// Stages of cpu_cases() by the CPU kernels, forward and backward, in fp32 and bf16, each timed
/// alone on the results of the one before it, `calls` times; beside them what this machine reaches
/// with LibTorch's matrix products (2048 squared) and copies (256 MiB). A stage has useful
/// operations by formula (step_work.h), their rate and its share of the fp32 product's, in which
/// the kernels compute. A case whose stages do not give the bits of the whole call has that in
/// `problems`.
nlohmann::json run_roofline_bench(const TargetBenchOptions& options, int64_t calls);

}  // namespace suites

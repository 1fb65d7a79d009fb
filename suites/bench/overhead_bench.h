#pragma once
#include <nlohmann/json.hpp>

#include "suites/bench/targets/target_bench.h"

namespace suites {

/// Host time of tiny calls through the registered operator nsa::attention_fwd beside the call of
/// the layer that its kernel makes (below autograd's dispatch keys), alternately; `rounds` of 20
/// calls each. A case whose results differ has that in `problems`. Times in us: median and the 10th
/// and 90th percentile of the rounds.
nlohmann::json run_overhead_bench(at::Device device, const TargetBenchOptions& options,
                                  int64_t rounds = 400);

}  // namespace suites

#pragma once
#include <nlohmann/json.hpp>
#include <vector>

#include "suites/bench/targets/target_bench.h"
#include "suites/bench/users/user_case.h"

namespace suites {

/// Calls of the registered operator in bf16 with backend auto: gradients and rows of the whole
/// length against the fp64 oracle, then forward and backward. A row has `backend` and, where the
/// CUDA kernels do not compute the call, `reason`; such a case is timed as what runs. Documents are
/// also timed padded to the longest (`padded`), as one document of the same tokens (`one_document`)
/// and with max_seqlen given (`with_max_seqlen`). A case that is wrong has no times.
nlohmann::json run_users_bench(at::Device device, const std::vector<UserCase>& cases,
                               const TargetBenchOptions& options);

}  // namespace suites

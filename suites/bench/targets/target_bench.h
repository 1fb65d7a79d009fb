#pragma once
#include <c10/core/Device.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "suites/bench/arguments.h"
#include "suites/bench/targets/target_case.h"

namespace suites {

struct TargetBenchOptions {
  std::string filter;  ///< only cases whose id contains it
  double seconds = 1;  ///< of hot samples a pass
  bool cold = true;    ///< also with a cold L2
  bool dense = true;   ///< also time the library's dense attention
  int64_t judged_rows = 48;
  /// Takes the report so far after every case, so that nothing is lost when the run ends early.
  std::function<void(const nlohmann::json&)> keep = [](const nlohmann::json&) {};
  uint64_t seed = kBenchSeed;
  nlohmann::json earlier = {};  ///< the report to go on with; run_cpu_bench only
};

/// Every one of `cases` on `device` in bf16: first whether it is right (gradients and rows
/// of the whole length against the fp64 oracle), then whether two runs give the same bits, then
/// forward and backward, hot and cold, beside dense attention. A case that is wrong, does not fit
/// or did not run the kernels lists that in `problems` and has no times where they would mislead.
nlohmann::json run_target_bench(at::Device device, const std::vector<TargetCase>& cases,
                                const TargetBenchOptions& options);

}  // namespace suites

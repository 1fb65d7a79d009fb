#pragma once
#include <c10/core/Device.h>

#include <nlohmann/json.hpp>
#include <string>

namespace suites {

struct TargetBenchOptions {
  std::string filter;  ///< only cases whose id contains it
  double seconds = 1;  ///< of hot samples a pass
  bool dense = true;   ///< also time the library's dense attention
  uint64_t seed = 20250216;
};

/// Every case of target_cases() on `device` in bf16: first whether it is right (gradients and rows
/// of the whole length against the fp64 oracle), then whether two runs give the same bits, then
/// forward and backward, hot and cold, beside dense attention. A case that is wrong, does not fit
/// or did not run the kernels says so in `problems` and has no times where they would mislead.
nlohmann::json run_target_bench(at::Device device, const TargetBenchOptions& options);

}  // namespace suites

#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>

#include "suites/conformance/case_config.h"

namespace suites {

/// What a case of nsa-bench cpu is run with.
struct CpuCase {
  int64_t pairs = 0;
  const nlohmann::json* earlier = nullptr;  ///< a row whose pairs count; may be null
  /// Takes the row so far.
  std::function<void(const nlohmann::json& row)> keep;
};

/// Decode steps of one sequence behind the context of `config` on a CPU: some steps against the
/// fp64 oracle, then pairs of a step and of dense attention of one query by LibTorch over the same
/// number of keys, in `type`, and in fp32.
void run_cpu_decode(const CaseConfig& config, at::ScalarType type, uint64_t seed, const CpuCase& in,
                    nlohmann::json& row);

}  // namespace suites

#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "harness/evidence/run_folder.h"
#include "harness/verdict/verdict.h"

namespace harness {

/// What a baseline is valid for: SKU, power limit and driver major of the first GPU
/// ("NVIDIA_H200-700W-580"), or the CPU model ("cpu-MODEL"); letters, digits, '.', '_' and '-'
/// only, so that it can be a file name. The LibTorch version, which the workers say, is compared by
/// the build id of the baseline.
std::string hardware_key(const nlohmann::json& environment);

/// baseline.json of a run folder: a copy of configs/baselines/RUNBOOK/HW_KEY.json,
/// {"schema":"nsa-baseline/1","runbook","hw_key","metrics":{NAME:{"value",...}},...}. No file: no
/// baseline. A damaged one, or one of other hardware or another runbook, sets `problem`, which
/// starts with BASELINE_INVALID.
Baselines read_baselines(const RunFolder& run, const std::string& runbook,
                         const nlohmann::json& environment);

}  // namespace harness

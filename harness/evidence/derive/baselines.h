#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "harness/evidence/storage/run_folder.h"
#include "harness/runbook/plan/baseline.h"
#include "harness/verdict/verdict.h"

namespace harness {

/// What a baseline of a run with this environment holds for: SKU, power limit and driver major of
/// the first GPU, or the CPU model; LibTorch.
HardwareKey hardware_of(const nlohmann::json& environment);

/// hw_key() of it: "nvidia_h200-700w-580-2.11", a file name.
std::string hardware_key(const nlohmann::json& environment);

/// baseline.json of a run folder, a copy of configs/baselines/RUNBOOK/HW_KEY.json, by the rules of
/// harness/runbook/plan/baseline.h. No file: no baseline. One that may not be used has a problem,
/// which starts with BASELINE_INVALID, and no values.
Baselines read_baselines(const RunFolder& run, const std::string& runbook,
                         const nlohmann::json& environment);

}  // namespace harness

#pragma once
#include <string>

#include "nsa/train/memory/memory_plan.h"
#include "nsa/train/memory/tensor_memory.h"
#include "nsa/train/record/judge.h"

namespace nsa::train {

/// P23: what was predicted, what there was when an allocation failed, and what would fit. `failure`
/// is empty where the allocator gave no sizes; `message` is its text.
Finding oom_finding(const ModelConfig& model, const StepShape& shape,
                    const std::optional<AllocationFailure>& failure, const std::string& message);

/// Figures memory.predicted_mib, memory.tensors_peak_mib and memory.unpredicted_ratio (the second
/// over the first); with `reason` and no value where `plan` or `peak_mib` is empty.
std::vector<Figure> memory_figures(const MemoryPlan& plan, double peak_mib,
                                   const std::string& reason);

}  // namespace nsa::train

#pragma once
#include <string_view>

#include "harness/results/results.h"

/// What the verdict and the reports ask of a phase that did not run.
namespace harness {

/// Whether the cause of a DEFERRED phase is that this machine lacks the hardware it needs
/// (GPU_COUNT, GPU_SKU_MISMATCH, GPU_CC); not that the hardware is busy.
inline bool is_missing_hardware(std::string_view cause) {
  return cause == "GPU_COUNT" || cause == "GPU_SKU_MISMATCH" || cause == "GPU_CC";
}

/// Whether a phase is required only where its hardware is, and was DEFERRED for want of it.
inline bool lacks_hardware(const PhaseResult& phase) {
  return phase.required == Required::kIfHardware && phase.status == StepStatus::kDeferred &&
         is_missing_hardware(phase.cause);
}

/// Whether a phase is required only on machines of its size, and was DEFERRED because this one has
/// fewer GPUs: the verdict makes no statement about it, and its scope states so.
inline bool is_beyond_size(const PhaseResult& phase) {
  return phase.required == Required::kBySize && phase.status == StepStatus::kDeferred &&
         phase.cause == "GPU_COUNT";
}

}  // namespace harness

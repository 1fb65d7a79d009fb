#pragma once
#include <nvtx3/nvToolsExt.h>

#include <atomic>

#include "nsa/diagnostics/stage_record.h"

namespace nsa {

/// Names a stretch of host code for profilers and for the record of stages while it lives. Costs a
/// few nanoseconds without a profiler; needs no CUDA. Ranges of one thread nest; a backward
/// pass opens its own, because autograd runs it on another thread than its forward pass.
class NvtxRange {
 public:
  explicit NvtxRange(const char* name, bool enabled = true)
      : enabled_(enabled && wanted().load(std::memory_order_relaxed)) {
    if (!enabled_) return;
    nvtxRangePushA(name);
    StageRecord::enter(name);
  }
  ~NvtxRange() {
    if (!enabled_) return;
    StageRecord::leave();
    nvtxRangePop();
  }
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;

  /// Switches all ranges of the process (NSA_NVTX): what runs outside of one call's options asks
  /// here.
  static void want(bool on) { wanted().store(on, std::memory_order_relaxed); }

 private:
  static std::atomic<bool>& wanted() {
    static std::atomic<bool> on{true};
    return on;
  }

  bool enabled_;
};

}  // namespace nsa

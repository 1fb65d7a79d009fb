#pragma once
#include <nvtx3/nvToolsExt.h>

namespace nsa {

/// Names a stretch of host code for profilers while it lives. Costs a few nanoseconds when no
/// profiler listens; needs no CUDA.
class NvtxRange {
 public:
  explicit NvtxRange(const char* name, bool enabled = true) : enabled_(enabled) {
    if (enabled_) nvtxRangePushA(name);
  }
  ~NvtxRange() {
    if (enabled_) nvtxRangePop();
  }
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;

 private:
  bool enabled_;
};

}  // namespace nsa

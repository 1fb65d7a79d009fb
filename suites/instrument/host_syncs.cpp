#include "suites/instrument/host_syncs.h"

#ifdef NSA_WITH_CUDA
#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>

#include <string>
#endif

namespace suites {
#ifdef NSA_WITH_CUDA
namespace {

/// Swallows and counts the debug mode's warnings; passes every other warning on.
class SyncCounter : public c10::WarningHandler {
 public:
  explicit SyncCounter(c10::WarningHandler* next) : next_(next) {}
  void process(const c10::Warning& warning) override {
    if (warning.msg().find("synchronizing CUDA operation") != std::string::npos)
      ++count_;
    else
      next_->process(warning);
  }
  int64_t count() const { return count_; }

 private:
  c10::WarningHandler* next_;
  int64_t count_ = 0;
};

/// Debug mode on for a scope; off again when the work throws.
class DebugModeGuard {
 public:
  DebugModeGuard() {
    c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_WARN);
  }
  ~DebugModeGuard() {
    c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_DISABLED);
  }
  DebugModeGuard(const DebugModeGuard&) = delete;
  DebugModeGuard& operator=(const DebugModeGuard&) = delete;
};

}  // namespace
#endif

std::optional<int64_t> count_host_syncs(at::Device device, const std::function<void()>& work) {
#ifdef NSA_WITH_CUDA
  if (device.is_cuda()) {
    SyncCounter counter(c10::WarningUtils::get_warning_handler());
    const c10::WarningUtils::WarningHandlerGuard handler(&counter);
    const c10::WarningUtils::WarnAlways every_time;
    const DebugModeGuard mode;
    work();
    return counter.count();
  }
#endif
  static_cast<void>(device);
  work();
  return std::nullopt;
}

}  // namespace suites

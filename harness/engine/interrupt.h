#pragma once
#include <csignal>

namespace harness {

/// While it lives SIGINT, SIGTERM, SIGHUP and SIGQUIT are noted instead of ending the process, so
/// that the engine can end its worker and leave a folder that can be continued. SIGPIPE and SIGXFSZ
/// are ignored: the writes report the error.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  /// The signal that came, 0: none.
  static int signal();

 private:
  struct sigaction before_[6];
};

}  // namespace harness

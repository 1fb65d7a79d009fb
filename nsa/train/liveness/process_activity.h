#pragma once

namespace nsa::train {

/// Whether this process does anything: uses processors, moves bytes of files, or waits for a disk.
/// What the calling thread does itself is not counted; one thread makes all calls.
class ProcessActivity {
 public:
  ProcessActivity();
  /// Since the last call. A process whose threads all sleep is not active; one that computes,
  /// reads, writes, or has a thread in an uninterruptible wait (state D: a disk, a network file
  /// system) is.
  bool was_active();

 private:
  struct Counters {
    double clock_s = 0;  ///< monotonic
    double cpu_s = 0;    ///< of all threads but the calling one
    double bytes = 0;    ///< read and written by system calls for files
  };
  static Counters read();
  Counters last_;
  double used_cpu_s_ = 0, window_began_s_;
};

}  // namespace nsa::train

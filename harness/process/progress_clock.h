#pragma once
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "base/protocol/messages.h"

namespace harness {

/// Limits of the watch. Times in seconds.
struct WatchPolicy {
  double timeout_s = 600;      ///< wall time of one process
  double first_step_s = 300;   ///< allowance without progress until three gaps are known
  double stall_floor_s = 30;   ///< smallest allowance afterwards
  double stall_factor = 5;     ///< allowance = max(floor, factor x median gap)
  double rate_floor = 0;       ///< SLOW below it, in the unit of the worker's rate; 0: no floor
  double snapshot_s = 1;       ///< time given to the worker to print its stacks
  double grace_s = 5;          ///< between TERM and KILL
  double proof_s = 5;          ///< time for killed processes to vanish
  double poll_s = 0.05;        ///< how often the result file is looked at
  uint64_t log_cap = 8 << 20;  ///< bytes kept of each standard stream
  uint64_t result_cap = uint64_t{256}
                        << 20;  ///< raw evidence of a process; its reader holds it all
};

/// Progress under the floor: recorded, never a reason to kill.
struct SlowRecord {
  double rate = 0, floor = 0;
  std::string unit;
  double eta_s = 0;  ///< until the last step, when it was last seen slow; 0 when the end is unknown
  template <class V>
  static void describe(V& v) {
    v({.name = "rate", .doc = "median of the measured rates", .required = true}, &SlowRecord::rate);
    v({.name = "floor", .doc = "args.rate_floor", .required = true}, &SlowRecord::floor);
    v({.name = "unit", .doc = "unit of rate and floor", .required = true}, &SlowRecord::unit);
    v({.name = "eta_s",
       .doc = "time left when it was last seen slow",
       .unit = "s",
       .required = true},
      &SlowRecord::eta_s);
  }
};

/// Decides from a worker's lines whether it advances. Pure: times are given, nothing is read.
///
/// A gap is the time between two beats with the same mark (`at`) of the same case, that is, about
/// one step: marks inside a step are progress too, but gaps between them would make the median
/// meaningless when one mark takes most of the step.
class ProgressClock {
 public:
  ProgressClock(const WatchPolicy& policy, double now) : policy_(policy), last_progress_(now) {}

  void progress(double now) { last_progress_ = now; }       ///< any complete line
  void beat(double now, const base::protocol::Beat& beat);  ///< also progress
  double allowance_s() const;                               ///< how long silence is accepted now
  double silence_s(double now) const { return now - last_progress_; }
  bool stalled(double now) const { return !(silence_s(now) <= allowance_s()); }
  std::optional<double> median_gap_s() const;
  double eta_s() const;  ///< 0: unknown
  /// The case at work when it is slow, else the last earlier case that was.
  const std::optional<SlowRecord>& slow() const { return slow_ ? slow_ : slow_before_; }

 private:
  struct Mark {
    double when = 0;
    int64_t step = 0;
  };
  void judge_rate(const base::protocol::Beat& beat);

  WatchPolicy policy_;
  double last_progress_;
  std::string case_id_;
  std::map<std::string, Mark> marks_;
  std::deque<double> gaps_, step_seconds_, rates_;
  int64_t steps_left_ = 0;
  std::optional<SlowRecord> slow_, slow_before_;
};

}  // namespace harness

#pragma once
#include <functional>
#include <memory>
#include <string>

#include "harness/trace/trace.h"
#include "suites/instrument/cupti/activity_collector.h"
#include "suites/phases/phase.h"

namespace suites {

/// A profile phase's way to a trace. Where nothing can be recorded the case is deferred.
class ProfileSession {
 public:
  /// Attaches the collector. Throws NotDecided (deferred: CUPTI_UNAVAILABLE, CUPTI_BUSY,
  /// CUPTI_PERMISSION) and ConfigError for a mode other than profile.
  explicit ProfileSession(const PhaseCase& one);

  ActivityCollector& collector() { return *collector_; }

  /// Records what `work` does; earlier records are thrown away, and so are those of `settle`, which
  /// runs before it with recording on: the first launches of each kernel behind the switch cost
  /// more. Both end with the device at rest.
  void record(const std::function<void()>& work, const std::function<void()>& settle = {});

  /// Writes CASE.trace.jsonl and, of `chrome_steps` steps, CASE.chrome.json (not for 0), reports
  /// them as artifacts, and returns the trace as read from the first: figures come from the file
  /// that is kept.
  harness::trace::Trace save(const std::string& step_range, int64_t chrome_steps);

 private:
  const PhaseCase& one_;
  std::unique_ptr<ActivityCollector> collector_;
};

/// Reports profile.dropped_count; throws NotDecided (partial: PROFILE_DROPPED) unless it is 0.
void refuse_losses(const PhaseCase& one, int64_t dropped);

}  // namespace suites

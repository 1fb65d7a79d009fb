#pragma once
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "harness/trace/trace.h"

namespace suites {

/// Why this process cannot record what the device does; nothing has been recorded.
class CollectorUnavailable : public std::runtime_error {
 public:
  /// `code`: CUPTI_UNAVAILABLE, CUPTI_BUSY (another profiler is attached) or CUPTI_PERMISSION.
  CollectorUnavailable(std::string code, const std::string& reason)
      : std::runtime_error(reason), code_(std::move(code)) {}
  const std::string& code() const { return code_; }

 private:
  std::string code_;
};

/// Makes NVTX ranges reach CUPTI. Must be called before the first range of the process, and only
/// where something will be recorded: afterwards a range costs about 0.1 us instead of nothing.
/// Returns the library it named; empty where there is none (a build or a machine without CUDA).
std::string inject_nvtx();

/// What can be recorded apart, to learn what each part costs.
enum class RecordPart {
  kKernels,
  kCopies,  ///< copies and memory sets
  kCalls,   ///< calls of runtime and driver that launch, copy, wait or allocate, by callbacks
  kWaits,   ///< event waits
  kRanges,  ///< NVTX
  // The same calls as CUPTI's own records, which cost more and are no part of a trace otherwise.
  kRuntimeRecords,
  kDriverRecords,
};
/// What a trace is made of.
inline const std::vector<RecordPart> kTraceParts = {RecordPart::kKernels, RecordPart::kCopies,
                                                    RecordPart::kCalls, RecordPart::kWaits,
                                                    RecordPart::kRanges};

/// Records device activities of this process through CUPTI: concurrent kernels, copies, memory
/// sets, runtime and driver calls that launch, copy or wait, event waits and NVTX ranges. One at a
/// time, never in a process whose times count. The library is the one that LibTorch has loaded, so
/// nothing is searched for. It stays attached until the process ends.
class ActivityCollector {
 public:
  /// Attaches. Throws CollectorUnavailable.
  ActivityCollector();
  ~ActivityCollector();
  ActivityCollector(const ActivityCollector&) = delete;
  ActivityCollector& operator=(const ActivityCollector&) = delete;

  /// Switches recording on and off; waits for the device at both ends, so that no kernel is cut.
  void start(const std::vector<RecordPart>& parts = kTraceParts);
  void stop();

  /// Throws away what was recorded so far. While recording is on, wait for the device before.
  void clear();

  /// Of the next trace, leaves out what begins before this moment; nothing is handed over, so the
  /// work that follows meets no other state than the work before. Wait for the device before.
  void begin_here();

  /// Runs `work` and notes the ranges in which it captures CUDA graphs, within those named
  /// `step_range`; traces taken later have the range of each captured node. Recording must be off,
  /// and what was recorded before is thrown away. Only ranges are recorded meanwhile.
  void watch_captures(const std::function<void()>& work, std::string_view step_range);

  /// What was recorded since the last clear(), decoded. Recording must be off.
  harness::trace::Trace take();

  /// Version of the library and its path.
  std::string library() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace suites

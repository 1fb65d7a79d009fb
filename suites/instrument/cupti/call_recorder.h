#pragma once
#include <vector>

#include "suites/instrument/cupti/call_log.h"
#include "suites/instrument/cupti/cupti_library.h"
#include "suites/instrument/cupti/graph_node_log.h"

namespace suites {

/// Calls of the CUDA runtime and driver that launch, copy, set, wait or allocate, through callbacks
/// of those calls alone. CUPTI's own records of calls cost more: with them it looks at every call,
/// and a training step on an H200 made 17 calls for each one of interest here. Takes the one place
/// that CUPTI has for profilers and keeps it. One object a process, which is never destroyed.
class CallRecorder {
 public:
  explicit CallRecorder(const CuptiLibrary& cupti) : cupti_(cupti) {}

  /// Throws CollectorUnavailable: CUPTI_BUSY where another profiler is attached.
  void attach();
  void start();
  void stop();

  /// Calls since the last take() or clear(). The threads that call CUDA must be at rest.
  std::vector<LoggedCall> take();
  void clear();
  int64_t lost() const;

  /// Nodes of CUDA graphs that are captured or cloned between the two calls, from the same
  /// callback.
  void start_nodes();
  std::vector<LoggedNode> stop_nodes();

 private:
  struct Call {
    CUpti_CallbackDomain domain;
    CUpti_CallbackId id;
  };
  std::vector<Call> find_calls() const;

  const CuptiLibrary& cupti_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  std::vector<Call> calls_;
};

}  // namespace suites

#pragma once
#include <cupti.h>

#include <map>
#include <unordered_map>
#include <utility>

#include "harness/trace/trace.h"
#include "suites/instrument/cupti/call_log.h"
#include "suites/instrument/cupti/cupti_library.h"
#include "suites/instrument/cupti/graph_node_log.h"

namespace suites {

/// Turns CUPTI's records into a trace. Two passes: records come in any order and in several blocks,
/// so all are read before ranges are closed and times are made relative.
class RecordDecoder {
 public:
  explicit RecordDecoder(const CuptiLibrary& cupti) : cupti_(cupti) {}

  /// Reads all records of a block. Records of unknown kinds are passed over.
  void read(uint8_t* data, size_t bytes);

  /// A call, from CUPTI's record of it or from the log of calls.
  void take_call(const LoggedCall& call);

  /// A node of a CUDA graph, as a call kNodeMade; the order of these calls is their number.
  void take_node(const LoggedNode& node);

  /// The trace, its times from the earliest record on, without those that begin before
  /// `first_time`; nodes of graphs, numbered as they came, in the ranges of their capture.
  harness::trace::Trace finish(const harness::trace::CapturedRanges& captured = {},
                               uint64_t first_time = 0);

 private:
  void take(CUpti_Activity* record);
  void take_kernel(const CUpti_ActivityKernel10& kernel);
  void take_copy(const CUpti_ActivityMemcpy6& copy);
  void take_set(const CUpti_ActivityMemset4& set);
  void take_marker(const CUpti_ActivityMarker2& marker);
  void take_wait(const CUpti_ActivitySynchronization2& wait);
  void leave_out_before(int64_t time);
  void shift_times();
  /// A record with a begin and an end; false, and counted, for one without.
  bool has_times(uint64_t begin, uint64_t end);
  int64_t node_number(uint64_t id);  ///< 0: no node of a graph
  int64_t kernel_name(const char* mangled);
  std::pair<int64_t, harness::trace::CallKind> call_name(CUpti_CallbackDomain domain,
                                                         CUpti_CallbackId id);

  struct OpenRange {
    uint64_t begin = 0, end = 0;
    int64_t thread = 0;
    int64_t name = -1;
  };

  const CuptiLibrary& cupti_;
  harness::trace::Trace trace_;
  harness::trace::NameTable names_{trace_.names};
  std::unordered_map<const char*, int64_t> kernel_names_;
  std::map<std::pair<int, uint32_t>, std::pair<int64_t, harness::trace::CallKind>> call_names_;
  std::unordered_map<uint32_t, OpenRange> markers_;
  std::unordered_map<uint64_t, int64_t> node_numbers_;
  int64_t nodes_made_ = 0;
};

}  // namespace suites

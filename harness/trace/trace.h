#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "harness/trace/analysis/intervals.h"

/// What a profiling worker recorded: work on the device, calls that the host made to the CUDA
/// runtime or driver, and named ranges of host code. No opinion: `attribute` and `tables` make
/// figures of it.
namespace harness::trace {

enum class WorkKind { kKernel, kCopy, kSet };

/// One activity of a device.
struct DeviceWork {
  WorkKind kind = WorkKind::kKernel;
  Interval time;
  int64_t device = 0, stream = 0;
  int64_t correlation = 0;  ///< of the call that asked for it
  int64_t name = 0;         ///< index into Trace::names: kernel, or kind of copy ("DtoH")
  int64_t bytes = 0;        ///< copies and sets
  int64_t graph_node = 0;   ///< number of the node of a CUDA graph that ran; 0: none did
};

enum class CallKind { kLaunch, kGraphLaunch, kCopy, kSet, kSync, kWaitEvent, kMemory, kOther };

/// One call of the CUDA runtime or driver on a host thread.
struct HostCall {
  CallKind kind = CallKind::kOther;
  Interval time;
  int64_t thread = 0, correlation = 0, name = 0;
};

/// One named range of host code; ranges of one thread nest.
struct HostRange {
  Interval time;
  int64_t thread = 0, name = 0;
};

/// A stream was made to wait for an event; explains a gap in front of its next kernel.
struct EventWait {
  Ns at = 0;
  int64_t stream = 0;
};

/// A range that was open while a CUDA graph was captured, once for each time it was entered.
struct GraphRange {
  int64_t name = 0;
  int64_t parent = -1;  ///< the range around it, a smaller index into Trace::graph_ranges; -1: none
};

/// Where a node of a CUDA graph was captured.
struct GraphNode {
  int64_t node = 0;    ///< as in DeviceWork::graph_node
  int64_t range = -1;  ///< index into Trace::graph_ranges; -1: captured outside of all ranges
};

struct Trace {
  std::string device;         ///< name of the card
  int64_t dropped = 0;        ///< records that the collector lost
  int64_t open_ranges = 0;    ///< ranges without an end or without a start; left out
  int64_t foreign_times = 0;  ///< records without a time; left out
  std::vector<std::string> names;
  std::vector<DeviceWork> work;
  std::vector<HostCall> calls;
  std::vector<HostRange> ranges;
  std::vector<EventWait> waits;
  std::vector<GraphRange> graph_ranges;
  std::vector<GraphNode> graph_nodes;  ///< a node whose capture was not seen is not among them

  const std::string& name_of(int64_t index) const { return names[static_cast<size_t>(index)]; }
};

/// Gives every text one index; those in `names` have theirs.
class NameTable {
 public:
  explicit NameTable(std::vector<std::string>& names);
  int64_t index(std::string_view text);

 private:
  std::vector<std::string>& names_;
  std::map<std::string, int64_t, std::less<>> known_;
};

/// The kind of a call by its name, with or without a version suffix: cudaLaunchKernel_v7000 is a
/// launch; cuStreamSynchronize is a synchronisation, and so is a copy that is not Async: the host
/// waits for it.
CallKind call_kind(std::string_view name);

/// "launch", "graph_launch", "copy", "set", "sync", "wait_event", "memory", "other".
std::string_view to_string(CallKind kind);

/// Whether a kernel moves data between devices: nccl(Dev)Kernel..., in any case.
bool is_communication(std::string_view kernel);

/// A kernel's name without return type, template arguments and parameters: what a table groups by.
std::string short_name(std::string_view kernel);

}  // namespace harness::trace

#pragma once
#include <unordered_map>
#include <vector>

#include "harness/trace/trace.h"

/// Which range of the host asked for which work of the device.
namespace harness::trace {

inline constexpr int64_t kNone = -1;

/// Ranges as a tree, and the range of every call and of all device work.
///
/// A range's parent is the innermost range of its thread that contains it; a range that has none
/// and runs on another thread than the steps (autograd's) hangs below what the thread of the steps
/// had open when it began. A call belongs to the innermost range of its thread at its begin, else
/// to that of the thread of the steps. Device work belongs to the range of the call with its
/// correlation, whenever it ran. The nodes of a CUDA graph belong to the range that was open when
/// they were captured: each launch of the graph enters the ranges of its capture anew, below the
/// range of the launch. A node whose capture was not seen belongs to the range of the launch.
struct Attribution {
  int64_t main_thread = kNone;  ///< of the steps
  /// Those of the trace, then those that launches of graphs entered: they took the host no time.
  std::vector<HostRange> ranges;
  std::vector<int64_t> parent;         ///< of every range; kNone: outermost
  std::vector<int64_t> step;           ///< of every range: the index of its step; kNone: outside
  std::vector<int64_t> steps;          ///< ranges that are steps, in order of time
  std::vector<int64_t> range_of_call;  ///< kNone: outside of all ranges
  std::vector<int64_t> range_of_work;  ///< kNone: no call or no range
  std::vector<int64_t> call_of_work;   ///< kNone: no call with this correlation
  std::vector<bool> unseen_capture;    ///< of all work: a graph's node captured before recording
};

/// `step_name`: the ranges that are steps. Throws harness::Error when ranges of one thread overlap
/// without nesting, or when steps lie on several threads or within each other.
Attribution attribute(const Trace& trace, std::string_view step_name);

/// Calls that are part of another call of their thread and kind (a runtime call that makes a driver
/// call): counted once, with the outer one. True: leave it out.
std::vector<bool> nested_calls(const Trace& trace);

}  // namespace harness::trace

#pragma once
#include <string>
#include <vector>

#include "harness/trace/trace.h"

/// Where the time of the steps went, in parts that add up to it: what two profiles are compared by.
namespace harness::trace {

/// A kernel or a kind of copy in one range, or a cause for which the device was idle.
struct StepPart {
  std::string name;   ///< without template arguments; of idle time the cause
  std::string range;  ///< that asked for it; empty: idle
  int64_t count = 0;  ///< of a step's kernels or copies, over all steps; 0: idle
  Ns time = 0;
};

struct StepParts {
  std::string step;  ///< name of the ranges that are steps
  int64_t steps = 0;
  Ns wall = 0;  ///< of all steps, on the host
  int64_t dropped = 0;
  std::vector<StepPart> parts;  ///< by time, descending; their times add up to `wall`
};

/// Name of the ranges that are steps: of those that no range contains the one in which the host
/// spent the most time. Throws harness::Error when there is no range.
std::string step_name(const Trace& trace);

/// Every moment of a step belongs to one part: to the work that runs then; of several to the one
/// that began first, and to communication only where nothing else runs; else to the cause of the
/// pause (IdleBreakdown). Throws harness::Error as `profile` does.
StepParts step_parts(const Trace& trace, std::string_view step);

}  // namespace harness::trace

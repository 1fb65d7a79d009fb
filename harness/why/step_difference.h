#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "harness/trace/analysis/step_parts.h"

/// Two profiles side by side, part by part: what a step of B takes more than one of A.
namespace harness {

/// A part of a step (trace::StepPart) in both profiles; a part that one of them lacks has 0 there.
struct PartChange {
  std::string name, range;
  double a_ms = 0, b_ms = 0;        ///< a step
  double a_count = 0, b_count = 0;  ///< a step
  double delta_ms() const { return b_ms - a_ms; }
};

struct StepDifference {
  double a_ms = 0, b_ms = 0;       ///< a step while it was recorded
  std::vector<PartChange> parts;   ///< by size of the change, descending; deltas add up to b - a
  std::vector<PartChange> ranges;  ///< the same by range; idle time is a range of its own
  double delta_ms() const { return b_ms - a_ms; }
};

/// The name of the range that stands for idle time.
inline constexpr const char* kIdle = "(idle)";

/// Throws Error where a profile has no step, lost records, or steps of another name.
StepDifference step_difference(const trace::StepParts& a, const trace::StepParts& b);

}  // namespace harness

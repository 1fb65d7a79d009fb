#pragma once
#include <cstdint>
#include <vector>

namespace harness::trace {

/// Nanoseconds since the start of the trace. Integers end to end: rounding to microseconds would
/// give short kernels no duration.
using Ns = int64_t;

/// The half-open interval [begin, end); empty when both are equal.
struct Interval {
  Ns begin = 0, end = 0;
  Ns length() const { return end - begin; }
  bool operator==(const Interval&) const = default;
};

/// The union as disjoint intervals in order; empty ones vanish, touching ones join.
std::vector<Interval> merge(std::vector<Interval> intervals);

/// Length of the union.
Ns busy(std::vector<Interval> intervals);

/// Sum of the lengths; what runs at the same time counts twice.
Ns sum(const std::vector<Interval>& intervals);

/// Parts of both; the arguments are merged.
std::vector<Interval> intersect(const std::vector<Interval>& a, const std::vector<Interval>& b);

/// Parts inside `window`.
std::vector<Interval> clip(const std::vector<Interval>& intervals, Interval window);

/// Parts of `window` that no interval covers; `intervals` are merged.
std::vector<Interval> gaps(const std::vector<Interval>& intervals, Interval window);

}  // namespace harness::trace

#include "harness/trace/analysis/intervals.h"

#include <algorithm>

namespace harness::trace {

std::vector<Interval> merge(std::vector<Interval> intervals) {
  std::erase_if(intervals, [](const Interval& one) { return one.length() <= 0; });
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  std::vector<Interval> merged;
  for (const Interval& one : intervals) {
    if (!merged.empty() && one.begin <= merged.back().end)
      merged.back().end = std::max(merged.back().end, one.end);
    else
      merged.push_back(one);
  }
  return merged;
}

Ns sum(const std::vector<Interval>& intervals) {
  Ns total = 0;
  for (const Interval& one : intervals) total += one.length();
  return total;
}

Ns busy(std::vector<Interval> intervals) { return sum(merge(std::move(intervals))); }

std::vector<Interval> intersect(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  std::vector<Interval> both;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const Interval part{std::max(a[i].begin, b[j].begin), std::min(a[i].end, b[j].end)};
    if (part.length() > 0) both.push_back(part);
    if (a[i].end < b[j].end)
      ++i;
    else
      ++j;
  }
  return both;
}

std::vector<Interval> clip(const std::vector<Interval>& intervals, Interval window) {
  std::vector<Interval> inside;
  for (const Interval& one : intervals) {
    const Interval part{std::max(one.begin, window.begin), std::min(one.end, window.end)};
    if (part.length() > 0) inside.push_back(part);
  }
  return inside;
}

std::vector<Interval> gaps(const std::vector<Interval>& intervals, Interval window) {
  std::vector<Interval> free;
  Ns at = window.begin;
  for (const Interval& one : clip(intervals, window)) {
    if (one.begin > at) free.push_back({at, one.begin});
    at = one.end;
  }
  if (at < window.end) free.push_back({at, window.end});
  return free;
}

}  // namespace harness::trace

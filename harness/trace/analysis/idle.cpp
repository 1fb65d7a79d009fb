#include "harness/trace/analysis/idle.h"

#include <algorithm>

namespace harness::trace {
namespace {

/// Work in order of its begin, to find what ended a gap.
std::vector<size_t> by_begin(const Trace& trace) {
  std::vector<size_t> order(trace.work.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return trace.work[a].time.begin < trace.work[b].time.begin;
  });
  return order;
}

/// Synchronisations of the host, merged.
std::vector<Interval> host_waits(const Trace& trace) {
  std::vector<Interval> waits;
  for (const HostCall& call : trace.calls)
    if (call.kind == CallKind::kSync) waits.push_back(call.time);
  return merge(std::move(waits));
}

class IdleFinder {
 public:
  IdleFinder(const Trace& trace, const Attribution& found)
      : trace_(trace), found_(found), order_(by_begin(trace)), waits_(host_waits(trace)) {}

  void take(Interval gap, IdleBreakdown& out) const {
    const size_t next = next_work(gap.end);
    const int64_t call = next == kNoWork ? kNone : found_.call_of_work[next];
    // Nothing comes any more, or it was asked for after the device had fallen idle: the host's
    // time.
    const bool asked_late =
        call == kNone || trace_.calls[static_cast<size_t>(call)].time.begin > gap.begin;
    if (asked_late && waited_at(gap.begin))
      out.sync += gap.length();
    else if (asked_late)
      out.host_wait += gap.length();
    else if (gap.length() < kKernelGap)
      out.kernel_wait += gap.length();
    else if (event_waited(trace_.work[next].stream, gap))
      out.event_wait += gap.length();
    else
      out.other += gap.length();
  }

 private:
  static constexpr size_t kNoWork = static_cast<size_t>(-1);

  size_t next_work(Ns time) const {
    const auto found = std::lower_bound(
        order_.begin(), order_.end(), time,
        [&](size_t index, Ns value) { return trace_.work[index].time.begin < value; });
    return found == order_.end() ? kNoWork : *found;
  }

  bool waited_at(Ns time) const {
    const auto behind =
        std::upper_bound(waits_.begin(), waits_.end(), time,
                         [](Ns value, const Interval& wait) { return value < wait.begin; });
    return behind != waits_.begin() && time <= std::prev(behind)->end;
  }

  bool event_waited(int64_t stream, Interval gap) const {
    return std::any_of(trace_.waits.begin(), trace_.waits.end(), [&](const EventWait& wait) {
      return wait.stream == stream && wait.at <= gap.end && wait.at >= gap.begin - kEventReach;
    });
  }

  /// A wait that was asked for longer ago explains nothing.
  static constexpr Ns kEventReach = 1'000'000;

  const Trace& trace_;
  const Attribution& found_;
  const std::vector<size_t> order_;
  const std::vector<Interval> waits_;
};

}  // namespace

IdleBreakdown break_down_idle(const Trace& trace, const Attribution& found,
                              const std::vector<Interval>& busy,
                              const std::vector<Interval>& windows) {
  const IdleFinder finder(trace, found);
  IdleBreakdown out;
  for (const Interval& window : windows)
    for (const Interval& gap : gaps(busy, window)) finder.take(gap, out);
  return out;
}

}  // namespace harness::trace

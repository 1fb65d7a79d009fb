#include "harness/trace/analysis/attribution.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "harness/schema/error.h"

namespace harness::trace {
namespace {

/// The innermost range of one thread over time.
class Nesting {
 public:
  /// `order`: ranges of the thread by begin, the longer one first. Sets their parents.
  Nesting(const Trace& trace, const std::vector<int64_t>& order, std::vector<int64_t>& parent) {
    std::vector<int64_t> open;
    const auto end_of = [&](int64_t range) {
      return trace.ranges[static_cast<size_t>(range)].time.end;
    };
    const auto close_until = [&](Ns time) {
      while (!open.empty() && end_of(open.back()) <= time) {
        const Ns end = end_of(open.back());
        open.pop_back();
        changes_.push_back({end, open.empty() ? kNone : open.back()});
      }
    };
    for (const int64_t range : order) {
      const HostRange& one = trace.ranges[static_cast<size_t>(range)];
      close_until(one.time.begin);
      if (!open.empty() && end_of(open.back()) < one.time.end)
        throw Error("range '" + trace.name_of(one.name) + "' at " + std::to_string(one.time.begin) +
                    " ns ends after the range around it on thread " + std::to_string(one.thread));
      parent[static_cast<size_t>(range)] = open.empty() ? kNone : open.back();
      open.push_back(range);
      changes_.push_back({one.time.begin, range});
    }
    close_until(std::numeric_limits<Ns>::max());
  }

  int64_t at(Ns time) const {
    const auto behind =
        std::upper_bound(changes_.begin(), changes_.end(), time,
                         [](Ns value, const Change& change) { return value < change.time; });
    return behind == changes_.begin() ? kNone : std::prev(behind)->range;
  }

 private:
  struct Change {
    Ns time;
    int64_t range;
  };
  std::vector<Change> changes_;
};

/// By begin, the longer one first: an outer range stands in front of what it contains.
template <class Item>
std::map<int64_t, std::vector<int64_t>> by_thread(const std::vector<Item>& items) {
  std::vector<int64_t> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const Interval& x = items[static_cast<size_t>(a)].time;
    const Interval& y = items[static_cast<size_t>(b)].time;
    return x.begin != y.begin ? x.begin < y.begin : x.end > y.end;
  });
  std::map<int64_t, std::vector<int64_t>> threads;
  for (const int64_t index : order)
    threads[items[static_cast<size_t>(index)].thread].push_back(index);
  return threads;
}

class Attributor {
 public:
  Attributor(const Trace& trace, std::string_view step_name) : trace_(trace) {
    out_.ranges = trace.ranges;
    out_.parent.assign(trace.ranges.size(), kNone);
    for (const auto& [thread, order] : by_thread(trace.ranges))
      threads_.emplace(thread, Nesting(trace, order, out_.parent));
    find_steps(step_name);
    adopt_orphans();
    number_steps();
    for (const GraphNode& one : trace.graph_nodes) range_of_node_.emplace(one.node, one.range);
  }

  Attribution run() {
    out_.range_of_call.reserve(trace_.calls.size());
    std::unordered_map<int64_t, int64_t> by_correlation;
    for (size_t i = 0; i < trace_.calls.size(); ++i) {
      const HostCall& call = trace_.calls[i];
      out_.range_of_call.push_back(range_at(call.thread, call.time.begin));
      by_correlation.emplace(call.correlation, static_cast<int64_t>(i));
    }
    for (const DeviceWork& work : trace_.work) {
      const auto found = by_correlation.find(work.correlation);
      const bool known = found != by_correlation.end() && work.correlation != 0;
      const int64_t call = known ? found->second : kNone;
      out_.call_of_work.push_back(call);
      out_.unseen_capture.push_back(work.graph_node != 0 &&
                                    !range_of_node_.contains(work.graph_node));
      out_.range_of_work.push_back(call == kNone ? kNone : range_of(work, call));
    }
    return std::move(out_);
  }

 private:
  int64_t range_of(const DeviceWork& work, int64_t call) {
    const int64_t launched = out_.range_of_call[static_cast<size_t>(call)];
    const auto captured = range_of_node_.find(work.graph_node);
    if (work.graph_node == 0 || captured == range_of_node_.end()) return launched;
    return enter(captured->second, call, launched);
  }

  /// The range of a capture as one launch of the graph entered it.
  int64_t enter(int64_t graph_range, int64_t call, int64_t launched) {
    if (graph_range == kNone) return launched;
    const auto known = entered_.find({call, graph_range});
    if (known != entered_.end()) return known->second;
    const GraphRange& one = trace_.graph_ranges[static_cast<size_t>(graph_range)];
    const int64_t around = enter(one.parent, call, launched);
    const HostCall& launch = trace_.calls[static_cast<size_t>(call)];
    const auto entry = static_cast<int64_t>(out_.ranges.size());
    out_.ranges.push_back({.time = {launch.time.begin, launch.time.begin},
                           .thread = launch.thread,
                           .name = one.name});
    out_.parent.push_back(around);
    out_.step.push_back(around == kNone ? kNone : out_.step[static_cast<size_t>(around)]);
    entered_.emplace(std::pair{call, graph_range}, entry);
    return entry;
  }

  int64_t innermost(int64_t thread, Ns time) const {
    const auto found = threads_.find(thread);
    return found == threads_.end() ? kNone : found->second.at(time);
  }

  int64_t range_at(int64_t thread, Ns time) const {
    const int64_t own = innermost(thread, time);
    return own != kNone ? own : innermost(out_.main_thread, time);
  }

  void find_steps(std::string_view step_name) {
    for (size_t i = 0; i < trace_.ranges.size(); ++i) {
      const HostRange& range = trace_.ranges[i];
      if (trace_.name_of(range.name) != step_name) continue;
      if (out_.main_thread != kNone && out_.main_thread != range.thread)
        throw Error("ranges '" + std::string(step_name) + "' must be on one thread, got " +
                    std::to_string(out_.main_thread) + " and " + std::to_string(range.thread));
      out_.main_thread = range.thread;
      out_.steps.push_back(static_cast<int64_t>(i));
    }
    std::stable_sort(out_.steps.begin(), out_.steps.end(), [&](int64_t a, int64_t b) {
      return trace_.ranges[static_cast<size_t>(a)].time.begin <
             trace_.ranges[static_cast<size_t>(b)].time.begin;
    });
  }

  void adopt_orphans() {
    for (size_t i = 0; i < trace_.ranges.size(); ++i)
      if (out_.parent[i] == kNone && trace_.ranges[i].thread != out_.main_thread)
        out_.parent[i] = innermost(out_.main_thread, trace_.ranges[i].time.begin);
  }

  void number_steps() {
    out_.step.assign(trace_.ranges.size(), kNone);
    for (size_t i = 0; i < out_.steps.size(); ++i)
      out_.step[static_cast<size_t>(out_.steps[i])] = static_cast<int64_t>(i);
    for (const int64_t step : out_.steps)
      for (int64_t up = out_.parent[static_cast<size_t>(step)]; up != kNone;
           up = out_.parent[static_cast<size_t>(up)])
        if (out_.step[static_cast<size_t>(up)] != kNone) throw Error("steps must not nest");
    for (size_t i = 0; i < trace_.ranges.size(); ++i) inherit_step(static_cast<int64_t>(i));
  }

  /// Walks up to the first range whose step is known; chains are as short as the nesting is deep.
  void inherit_step(int64_t range) {
    int64_t up = range;
    while (up != kNone && out_.step[static_cast<size_t>(up)] == kNone)
      up = out_.parent[static_cast<size_t>(up)];
    if (up != kNone) out_.step[static_cast<size_t>(range)] = out_.step[static_cast<size_t>(up)];
  }

  const Trace& trace_;
  std::map<int64_t, Nesting> threads_;
  std::unordered_map<int64_t, int64_t> range_of_node_;
  std::map<std::pair<int64_t, int64_t>, int64_t> entered_;  ///< (launch, range of a capture)
  Attribution out_;
};

}  // namespace

Attribution attribute(const Trace& trace, std::string_view step_name) {
  return Attributor(trace, step_name).run();
}

std::vector<bool> nested_calls(const Trace& trace) {
  std::vector<bool> nested(trace.calls.size(), false);
  for (const auto& [thread, order] : by_thread(trace.calls)) {
    std::map<CallKind, Ns> end;  // of the outermost call so far
    for (const int64_t index : order) {
      const HostCall& call = trace.calls[static_cast<size_t>(index)];
      const auto [known, first] = end.try_emplace(call.kind, call.time.end);
      if (!first && call.time.begin < known->second)
        nested[static_cast<size_t>(index)] = true;
      else
        known->second = call.time.end;
    }
  }
  return nested;
}

}  // namespace harness::trace

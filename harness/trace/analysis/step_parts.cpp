#include "harness/trace/analysis/step_parts.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "harness/schema/error.h"
#include "harness/trace/analysis/attribution.h"
#include "harness/trace/analysis/idle.h"

namespace harness::trace {
namespace {

size_t index_of(int64_t index) { return static_cast<size_t>(index); }

class Divider {
 public:
  Divider(const Trace& trace, std::string_view step)
      : trace_(trace), found_(attribute(trace, step)) {
    if (found_.steps.empty())
      throw Error("the trace must have ranges '" + std::string(step) + "', got none");
    for (const int64_t each : found_.steps) windows_.push_back(found_.ranges[index_of(each)].time);
    for (const DeviceWork& work : trace.work)
      if (work.device != trace.work.front().device)
        throw Error("a trace must hold work of one device, got " +
                    std::to_string(trace.work.front().device) + " and " +
                    std::to_string(work.device));
  }

  StepParts run(std::string_view step) {
    StepParts out{.step = std::string(step),
                  .steps = static_cast<int64_t>(windows_.size()),
                  .wall = sum(windows_),
                  .dropped = trace_.dropped,
                  .parts = {}};
    for (const Interval& window : windows_) divide(window);
    for (auto& [key, part] : parts_) out.parts.push_back(std::move(part));
    add_idle(out.parts);
    std::stable_sort(out.parts.begin(), out.parts.end(),
                     [](const StepPart& a, const StepPart& b) { return a.time > b.time; });
    return out;
  }

 private:
  /// An end of work inside a window; ends come before beginnings of the same time.
  struct Edge {
    Ns time;
    bool begins;
    size_t work;
    bool operator<(const Edge& other) const {
      return std::tie(time, begins, work) < std::tie(other.time, other.begins, other.work);
    }
  };
  /// Order in which running work claims a moment.
  using Claim = std::tuple<bool, Ns, size_t>;
  Claim claim(size_t index) const {
    const DeviceWork& work = trace_.work[index];
    const bool talks =
        work.kind == WorkKind::kKernel && is_communication(trace_.name_of(work.name));
    return {talks, work.time.begin, index};
  }

  void divide(const Interval& window) {
    std::vector<Edge> edges;
    for (size_t i = 0; i < trace_.work.size(); ++i) {
      const Interval time = {std::max(trace_.work[i].time.begin, window.begin),
                             std::min(trace_.work[i].time.end, window.end)};
      if (time.begin >= time.end) continue;
      edges.push_back({time.begin, true, i});
      edges.push_back({time.end, false, i});
      if (trace_.work[i].time.begin >= window.begin) ++part_of(i).count;
    }
    std::sort(edges.begin(), edges.end());
    std::set<Claim> running;
    Ns from = window.begin;
    for (const Edge& edge : edges) {
      if (!running.empty()) part_of(std::get<size_t>(*running.begin())).time += edge.time - from;
      from = edge.time;
      if (edge.begins)
        running.insert(claim(edge.work));
      else
        running.erase(claim(edge.work));
    }
  }

  StepPart& part_of(size_t index) {
    const DeviceWork& work = trace_.work[index];
    const int64_t range = found_.range_of_work[index];
    const std::string& whole = trace_.name_of(work.name);
    const std::string name = work.kind == WorkKind::kKernel ? short_name(whole) : whole;
    const std::string in = range == kNone ? "outside of all ranges"
                                          : trace_.name_of(found_.ranges[index_of(range)].name);
    StepPart& part = parts_[{name, in}];
    part.name = name, part.range = in;
    return part;
  }

  void add_idle(std::vector<StepPart>& parts) const {
    std::vector<Interval> work;
    for (const DeviceWork& each : trace_.work) work.push_back(each.time);
    const IdleBreakdown idle = break_down_idle(trace_, found_, merge(std::move(work)), windows_);
    const std::pair<const char*, Ns> causes[] = {
        {"idle: the host waited for the device, then had nothing queued", idle.sync},
        {"idle: the host had not asked for the next work yet", idle.host_wait},
        {"idle: a stream waited for an event", idle.event_wait},
        {"idle: pauses under 2 us between kernels", idle.kernel_wait},
        {"idle: other pauses", idle.other}};
    for (const auto& [name, time] : causes) parts.push_back({name, "", 0, time});
  }

  const Trace& trace_;
  const Attribution found_;
  std::vector<Interval> windows_;
  std::map<std::pair<std::string, std::string>, StepPart> parts_;
};

}  // namespace

std::string step_name(const Trace& trace) {
  std::vector<const HostRange*> ranges;
  for (const HostRange& range : trace.ranges) ranges.push_back(&range);
  std::sort(ranges.begin(), ranges.end(), [](const HostRange* a, const HostRange* b) {
    return std::tuple(a->thread, a->time.begin, -a->time.end) <
           std::tuple(b->thread, b->time.begin, -b->time.end);
  });
  std::map<int64_t, Ns> host;  // of ranges that no other contains, by name
  const HostRange* outer = nullptr;
  for (const HostRange* range : ranges) {
    if (outer != nullptr && outer->thread == range->thread && range->time.end <= outer->time.end)
      continue;
    outer = range;
    host[range->name] += range->time.length();
  }
  if (host.empty()) throw Error("the trace has no ranges, so no steps");
  const auto most = std::ranges::max_element(
      host, [](const auto& a, const auto& b) { return a.second < b.second; });
  return trace.name_of(most->first);
}

StepParts step_parts(const Trace& trace, std::string_view step) {
  return Divider(trace, step).run(step);
}

}  // namespace harness::trace

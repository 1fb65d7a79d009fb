#include "harness/trace/analysis/graph_capture.h"

#include <map>

#include "harness/schema/error.h"
#include "harness/trace/analysis/attribution.h"

namespace harness::trace {
namespace {

class Captures {
 public:
  Captures(const Trace& trace, const std::vector<NodeMade>& made, std::string_view step_name)
      : trace_(trace), found_(attribute(trace, step_name)) {
    for (const NodeMade& one : made)
      if (one.original != 0) original_.emplace(one.node, one.original);
    for (size_t i = 0; i < trace.calls.size(); ++i) {
      const HostCall& call = trace.calls[i];
      if (trace.name_of(call.name) != kNodeMade || call.correlation < 1 ||
          call.correlation > static_cast<int64_t>(made.size()))
        continue;
      const NodeMade& one = made[static_cast<size_t>(call.correlation) - 1];
      if (one.original == 0) captured_.emplace(one.node, found_.range_of_call[i]);
    }
    for (const NodeMade& one : made) place(one.node);
  }

  CapturedRanges take() && { return std::move(out_); }

 private:
  /// A cloned node may be reported as made, too: the node it was cloned from decides.
  void place(uint64_t node) {
    uint64_t first = node;
    for (size_t steps = 0; original_.contains(first); first = original_.at(first))
      if (++steps > original_.size())
        throw Error("nodes of CUDA graphs must not be clones of each other, got one of node " +
                    std::to_string(node));
    if (const auto captured = captured_.find(first); captured != captured_.end())
      out_.range_of_node.emplace(node, keep(captured->second));
  }

  bool is_step(int64_t range) const {
    const int64_t step = found_.step[static_cast<size_t>(range)];
    return step != kNone && found_.steps[static_cast<size_t>(step)] == range;
  }

  /// The range below its step; the step itself and what lies around it belong to one moment alone.
  int64_t keep(int64_t range) {
    if (range == kNone || is_step(range)) return kNone;
    if (const auto known = kept_.find(range); known != kept_.end()) return known->second;
    const int64_t parent = keep(found_.parent[static_cast<size_t>(range)]);
    const HostRange& one = trace_.ranges[static_cast<size_t>(range)];
    out_.ranges.push_back({.name = trace_.name_of(one.name), .parent = parent});
    return kept_[range] = static_cast<int64_t>(out_.ranges.size()) - 1;
  }

  const Trace& trace_;
  const Attribution found_;
  std::unordered_map<uint64_t, uint64_t> original_;
  std::unordered_map<uint64_t, int64_t> captured_;
  std::map<int64_t, int64_t> kept_;
  CapturedRanges out_;
};

}  // namespace

void CapturedRanges::name_nodes(Trace& trace,
                                const std::unordered_map<uint64_t, int64_t>& numbers) const {
  NameTable names(trace.names);
  std::map<int64_t, int64_t> placed;  // only ranges that a node of the trace needs
  const auto place = [&](const auto& self, int64_t range) -> int64_t {
    if (range == kNone) return kNone;
    if (const auto known = placed.find(range); known != placed.end()) return known->second;
    const Range& one = ranges[static_cast<size_t>(range)];
    const int64_t parent = self(self, one.parent);
    trace.graph_ranges.push_back({.name = names.index(one.name), .parent = parent});
    return placed[range] = static_cast<int64_t>(trace.graph_ranges.size()) - 1;
  };
  const std::map<uint64_t, int64_t> ordered(numbers.begin(), numbers.end());
  for (const auto& [node, number] : ordered)
    if (const auto found = range_of_node.find(node); found != range_of_node.end())
      trace.graph_nodes.push_back({.node = number, .range = place(place, found->second)});
}

void CapturedRanges::add(const CapturedRanges& other) {
  const auto offset = static_cast<int64_t>(ranges.size());
  const auto moved = [offset](int64_t range) { return range == kNone ? kNone : range + offset; };
  for (const Range& one : other.ranges)
    ranges.push_back({.name = one.name, .parent = moved(one.parent)});
  for (const auto& [node, range] : other.range_of_node)
    range_of_node.insert_or_assign(node, moved(range));
}

CapturedRanges captured_ranges(const Trace& capture, const std::vector<NodeMade>& made,
                               std::string_view step_name) {
  return Captures(capture, made, step_name).take();
}

}  // namespace harness::trace

#pragma once
#include <string>

#include "harness/trace/trace.h"

namespace harness::trace {

/// Builds traces by hand. Times in ns.
class TraceBuilder {
 public:
  TraceBuilder& range(const std::string& name, int64_t thread, Ns begin, Ns end) {
    trace_.ranges.push_back({{begin, end}, thread, names_.index(name)});
    return *this;
  }
  TraceBuilder& call(const std::string& name, int64_t thread, Ns begin, Ns end,
                     int64_t correlation = 0) {
    trace_.calls.push_back(
        {call_kind(name), {begin, end}, thread, correlation, names_.index(name)});
    return *this;
  }
  TraceBuilder& launch(int64_t thread, Ns begin, int64_t correlation) {
    return call("cudaLaunchKernel_v7000", thread, begin, begin + 5, correlation);
  }
  TraceBuilder& kernel(const std::string& name, int64_t stream, Ns begin, Ns end,
                       int64_t correlation, int64_t graph_node = 0) {
    trace_.work.push_back({.kind = WorkKind::kKernel,
                           .time = {begin, end},
                           .stream = stream,
                           .correlation = correlation,
                           .name = names_.index(name),
                           .graph_node = graph_node});
    return *this;
  }
  TraceBuilder& copy(const std::string& name, int64_t stream, Ns begin, Ns end, int64_t correlation,
                     int64_t bytes) {
    trace_.work.push_back({.kind = WorkKind::kCopy,
                           .time = {begin, end},
                           .stream = stream,
                           .correlation = correlation,
                           .name = names_.index(name),
                           .bytes = bytes});
    return *this;
  }
  /// A range of a capture; gives its index. `parent`: of the range around it.
  int64_t graph_range(const std::string& name, int64_t parent = -1) {
    trace_.graph_ranges.push_back({names_.index(name), parent});
    return static_cast<int64_t>(trace_.graph_ranges.size()) - 1;
  }
  TraceBuilder& graph_node(int64_t node, int64_t range) {
    trace_.graph_nodes.push_back({node, range});
    return *this;
  }
  Trace& trace() { return trace_; }

 private:
  Trace trace_;
  NameTable names_{trace_.names};
};

}  // namespace harness::trace

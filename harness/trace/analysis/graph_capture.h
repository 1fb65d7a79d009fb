#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "harness/trace/trace.h"

/// Which ranges were open when the nodes of CUDA graphs were captured: a replay asks for their
/// kernels with one call, which does not identify stages.
namespace harness::trace {

/// A node of a CUDA graph as it came to be. Ids are the driver's, unique in a process.
struct NodeMade {
  uint64_t node = 0;
  uint64_t original = 0;  ///< the node it was cloned from, as by instantiation; 0: captured
};

/// Calls of this name in the trace of a capture record when and on which thread a node was made;
/// their correlation is 1 + its index among the nodes made.
inline constexpr std::string_view kNodeMade = "graph node made";

/// Ranges within a step, by node. Holds names of its own: traces of replays have other tables.
struct CapturedRanges {
  struct Range {
    std::string name;
    int64_t parent = -1;  ///< smaller index; -1: outermost below the step
  };
  std::vector<Range> ranges;
  std::unordered_map<uint64_t, int64_t> range_of_node;  ///< -1: made outside of all ranges

  /// Names the nodes of a trace of replays. `numbers`: DeviceWork::graph_node of every driver's id.
  void name_nodes(Trace& trace, const std::unordered_map<uint64_t, int64_t>& numbers) const;

  /// Adds the nodes of another trace of captures.
  void add(const CapturedRanges& other);
};

/// `capture`: a trace with ranges and with calls kNodeMade while graphs were captured and
/// instantiated. A node belongs to the innermost range open on the thread that made it, as in
/// `attribute`; a clone to that of its original, also where its making was seen in another range;
/// one whose original was not seen is left out. Throws harness::Error as `attribute` does, and for
/// clones of each other.
CapturedRanges captured_ranges(const Trace& capture, const std::vector<NodeMade>& made,
                               std::string_view step_name);

}  // namespace harness::trace

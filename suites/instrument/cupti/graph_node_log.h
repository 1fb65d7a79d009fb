#pragma once
#include <cupti.h>

#include <cstdint>
#include <mutex>
#include <vector>

#include "harness/trace/analysis/graph_capture.h"

namespace suites {

/// A node of a CUDA graph that was captured or cloned.
struct LoggedNode {
  harness::trace::NodeMade made;
  uint64_t at = 0;      ///< ns of the clock of the log
  uint32_t thread = 0;  ///< the kernel's number of it
};

/// Nodes of CUDA graphs as CUPTI's callbacks report them. Graphs are made seldom, so a lock is
/// cheap. Any thread may write.
class GraphNodeLog {
 public:
  using Clock = uint64_t (*)();
  using NodeId = decltype(&::cuptiGetGraphNodeId);

  explicit GraphNodeLog(Clock now) : now_(now) {}

  /// The function that gives a node its id; before the first node.
  void use(NodeId node_id) { node_id_ = node_id; }

  /// A callback CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED or _CLONED. A node without an id is counted.
  void on_node(CUpti_CallbackId id, const CUpti_GraphData& data);

  std::vector<LoggedNode> take();
  int64_t lost() const;  ///< nodes without an id, since ever

 private:
  const Clock now_;
  NodeId node_id_ = nullptr;
  mutable std::mutex mutex_;
  std::vector<LoggedNode> nodes_;
  int64_t lost_ = 0;
};

}  // namespace suites

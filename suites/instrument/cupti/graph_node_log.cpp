#include "suites/instrument/cupti/graph_node_log.h"

#include <utility>

#include "suites/instrument/cupti/call_log.h"

namespace suites {

void GraphNodeLog::on_node(CUpti_CallbackId id, const CUpti_GraphData& data) {
  LoggedNode node;
  node.at = now_();
  node.thread = own_thread();
  const bool cloned = id == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED;
  const bool known = node_id_ != nullptr && node_id_(data.node, &node.made.node) == CUPTI_SUCCESS &&
                     (!cloned || node_id_(data.originalNode, &node.made.original) == CUPTI_SUCCESS);
  const std::lock_guard lock(mutex_);
  if (known)
    nodes_.push_back(node);
  else
    ++lost_;
}

std::vector<LoggedNode> GraphNodeLog::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(nodes_, {});
}

int64_t GraphNodeLog::lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

}  // namespace suites

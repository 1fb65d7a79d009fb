#include "harness/runbook/graph.h"

#include <algorithm>
#include <map>

namespace harness {
namespace {

class Walk {
 public:
  explicit Walk(const Runbook& runbook) : runbook_(runbook), state_(runbook.phases.size()) {
    for (size_t i = 0; i < runbook.phases.size(); ++i) index_.emplace(runbook.phases[i].id, i);
  }

  PhaseOrder run() {
    for (size_t i = 0; i < state_.size(); ++i)
      if (!visit(i)) return {{}, result_.cycle};
    return std::move(result_);
  }

 private:
  enum class State { kNew, kOpen, kDone };

  /// Depth first: what a phase needs comes before it. False when a cycle was found.
  bool visit(size_t i) {
    if (state_[i] == State::kDone) return true;
    if (state_[i] == State::kOpen) {
      result_.cycle.assign(std::find(path_.begin(), path_.end(), i), path_.end());
      return false;
    }
    state_[i] = State::kOpen;
    path_.push_back(i);
    for (const std::string& need : runbook_.phases[i].needs) {
      const auto found = index_.find(need);
      if (found != index_.end() && !visit(found->second)) return false;
    }
    path_.pop_back();
    state_[i] = State::kDone;
    result_.order.push_back(i);
    return true;
  }

  const Runbook& runbook_;
  std::vector<State> state_;
  std::map<std::string, size_t> index_;
  std::vector<size_t> path_;
  PhaseOrder result_;
};

}  // namespace

PhaseOrder order_phases(const Runbook& runbook) { return Walk(runbook).run(); }

}  // namespace harness

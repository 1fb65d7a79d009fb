#include "harness/runbook/plan/graph.h"

#include <algorithm>
#include <map>

#include "harness/runbook/checks/names.h"

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
    for (const std::string& need : phases_before(runbook_, runbook_.phases[i])) {
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

std::vector<std::string> phases_before(const Runbook& runbook, const PhaseSpec& phase) {
  std::vector<std::string> before = phase.needs;
  for (const PhaseSpec& other : runbook.phases)
    for (const CriterionSpec& criterion : other.criteria) {
      if (!contains(phase.needs_criteria, criterion.id)) continue;
      for (const std::string& id :
           {other.id, criterion.metric.substr(0, criterion.metric.find('.'))})
        if (id != phase.id && !contains(before, id)) before.push_back(id);
    }
  return before;
}

PhaseOrder order_phases(const Runbook& runbook) { return Walk(runbook).run(); }

}  // namespace harness

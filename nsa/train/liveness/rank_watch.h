#pragma once
#include <functional>
#include <memory>
#include <string>

#include "nsa/train/liveness/rank_pulse.h"
#include "nsa/train/ranks/collective_log.h"
#include "nsa/train/ranks/rank_group.h"
#include "nsa/train/record/judge.h"
#include "nsa/train/record/step_watch.h"

namespace nsa::train {

/// Ends a run that waits for a rank for ever. By signs of life (RankPulse) within 10 s; a rank that
/// gives them but makes no progress, such as one whose kernel never returns, after `timeout_s`.
class RankWatch {
 public:
  /// `on_lost` is called once, from a thread of its own, and must end the process. `ranks` and
  /// `collectives` stay until this is gone.
  RankWatch(const RankPlace& place, const RankGroup& ranks, const CollectiveLog& collectives,
            double timeout_s, std::function<void(const Finding&)> on_lost);

  void progress();
  /// What the signs of life told before an error of the main thread; empty: nothing.
  std::string lost() const { return pulse_ ? pulse_->lost() : ""; }
  /// This rank is about to leave the group: no more signs of life.
  void leave() { pulse_.reset(); }

 private:
  std::unique_ptr<RankPulse> pulse_;
  StepWatch steps_;
};

}  // namespace nsa::train

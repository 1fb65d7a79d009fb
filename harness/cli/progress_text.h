#pragma once
#include <cstdint>
#include <string>

#include "harness/protocol/messages.h"
#include "harness/runbook/plan/plan.h"

/// Words of the progress display; no state of a terminal.
namespace harness::cli {

/// "[########............]"; empty while `of` is unknown.
std::string bar(int64_t step, int64_t of, size_t width);

/// "step 3/40 forward, 1200 tok/s, 12 s left"; whatever a worker wrote into its beat stays text.
std::string beat_text(const protocol::Beat& beat, double eta_s);

/// The first `columns` characters of a line, the last one "…" where something was cut; 0: all.
std::string fit(const std::string& line, size_t columns);

/// Time left of a whole run: the minutes that the plan expects for what is not done, scaled by how
/// the ended phases compared with their expectation.
class RunClock {
 public:
  explicit RunClock(const Plan& plan);
  void start(const PlannedPhase& phase);
  void end(const PlannedPhase& phase, double seconds);

  /// Seconds, `in_phase` of which the current phase has used; 0 when the plan says nothing.
  double left_s(double in_phase) const;

 private:
  double planned_left_s_ = 0;     ///< of phases that have not begun
  double planned_current_s_ = 0;  ///< of the one at work
  double planned_ended_s_ = 0, took_s_ = 0;
};

}  // namespace harness::cli

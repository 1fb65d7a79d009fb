#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "harness/runbook/plan/plan.h"

/// How long the rest of a run will take.
namespace harness::cli {

/// A finished run of the same runbook on the same hardware: how long its phases took.
struct EarlierRun {
  Plan plan;
  std::map<std::string, double> seconds;  ///< of phases that were COMPLETED in one go
};

/// Runs in `runs` that finished on `hardware` (hardware_key) with this runbook, newest first; what
/// cannot be read is left out.
std::vector<EarlierRun> earlier_runs(const std::filesystem::path& runs, const std::string& runbook,
                                     const std::string& hardware);

/// Seconds of each phase of `plan` in the newest of `runs` that ran it with the same arguments,
/// cases, number of processes, device and switches; a phase that none of them ran so is missing.
std::map<std::string, double> measured_seconds(const Plan& plan,
                                               const std::vector<EarlierRun>& runs);

/// Time left of a run: what each phase took before on this machine, else the minutes of its plan;
/// each of the two is scaled by how the ended phases compared with that same expectation.
class TimeLeft {
 public:
  explicit TimeLeft(const Plan& plan, std::map<std::string, double> measured = {});
  void start(const PlannedPhase& phase);
  void end(const PlannedPhase& phase, double seconds);

  /// Seconds left when the current phase has used `in_phase`; 0 when nothing is expected.
  /// `process_left`: what its only process expects still to take, which --set may have made longer
  /// than any earlier run; 0: not known.
  double seconds(double in_phase, double process_left = 0) const;

 private:
  struct Expectation {
    double all = 0;      ///< of the whole run
    double waiting = 0;  ///< of phases that have not begun
    double current = 0;  ///< of the one at work
    double ended = 0, took = 0;
    double pace() const;
  };
  Expectation& of(const PlannedPhase& phase);
  double expected(const PlannedPhase& phase) const;

  std::map<std::string, double> measured_;
  Expectation before_,
      planned_;  ///< phases measured before; phases of which only minutes are known
};

/// "about 2 min left", in steps that the estimate deserves; empty for less than a second.
std::string about_left(double seconds);

}  // namespace harness::cli

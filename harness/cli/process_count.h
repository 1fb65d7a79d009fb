#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "harness/runbook/plan/plan.h"

namespace harness::cli {

/// The processes of a phase, which run one after the other: how many there are, and how long those
/// that are left will take.
class ProcessCount {
 public:
  ProcessCount() = default;
  explicit ProcessCount(const PlannedPhase& phase);

  /// Process `group` ("g07": the seventh) starts when the phase has used `in_phase` seconds.
  void start(const std::string& group, double in_phase);

  size_t number() const { return number_; }  ///< of the one that runs, from 1; 0 before the first
  /// How many are known to run: those of the first look, and of each further one that has begun.
  size_t of() const { return of_; }
  /// Seconds until the last of them ends, at the mean time of those that ended; 0 until one has.
  double left(double in_phase) const;

 private:
  std::vector<size_t> stages_;  ///< further looks that have not begun: how many processes each has
  size_t number_ = 0, of_ = 0, starts_ = 0;
  double each_ = 0;  ///< seconds
};

}  // namespace harness::cli

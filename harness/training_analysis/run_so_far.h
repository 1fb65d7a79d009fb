#pragma once
#include <filesystem>
#include <string>

#include "harness/evidence/storage/run_files.h"

namespace harness {

/// A run under way, as one of its later phases reads it: the plan, and the results derived from the
/// evidence so far.
struct RunSoFar {
  RunFiles files;
  Results results;

  /// Null where the run has none of that name.
  const PlannedPhase* phase(const std::string& id) const;
  const CriterionResult* criterion(const std::string& id) const;
  /// The figure PHASE.NAME with a value that counts; null otherwise.
  const Metric* figure(const std::string& phase, const std::string& name) const;
  /// Why figure() gives none, in the figure's own words.
  std::string why_no_figure(const std::string& phase, const std::string& name) const;
};

RunSoFar run_so_far(const std::filesystem::path& run_dir);

/// "412 tok/s [398, 430]"; without bounds it states that.
std::string measured_text(const Metric& metric);

}  // namespace harness

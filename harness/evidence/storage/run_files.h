#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/evidence/error.h"
#include "harness/evidence/storage/run_folder.h"
#include "harness/results/results.h"
#include "harness/runbook/load.h"
#include "harness/runbook/plan/plan.h"
#include "harness/schema/read.h"

namespace harness {

/// One described struct from a file of the run. Throws EvidenceError with line and column.
template <class T>
T read_as(const RunFolder& run, const std::string& path) {
  try {
    return read_json<T>(run.read(path), path);
  } catch (const ConfigError& e) {
    const std::string at = e.line() == 0 ? ""
                                         : "line " + std::to_string(e.line()) + ", column " +
                                               std::to_string(e.column()) + ": ";
    throw EvidenceError(path, at + e.message());
  }
}

/// A process that advanced under the floor of its rate, and was let go on.
struct SlowProcess {
  std::string group;  ///< g01
  double rate = 0, floor = 0;
  std::string unit;  ///< of rate and floor
  double eta_s = 0;  ///< time left when it was last seen slow; 0: not known
};

/// phases/PHASE/phase.json: how a phase ended, as the engine saw it.
struct PhaseEnd {
  StepStatus status = StepStatus::kNotRun;
  std::string cause, reason;
  double seconds = 0;
  int64_t attempts = 0;
  std::vector<std::string> faults;  ///< faults of harness or machine that no attempt overcame
  std::vector<SlowProcess> slow;
};

/// What a run was to do, and on what machine: the files written before its first phase.
struct RunFiles {
  RunInfo run;
  Runbook runbook;
  Kinds kinds;
  Plan plan;
  nlohmann::json environment;
};

/// Throws EvidenceError for a missing, damaged or contradictory file.
RunFiles read_run_files(const RunFolder& run);

/// The end of one planned phase: its phase.json; for a phase the plan did not let run, the plan's
/// decision. Throws EvidenceError when a phase was to run and has no phase.json (it was cut off),
/// or a damaged one.
PhaseEnd read_phase_end(const RunFolder& run, const PlannedPhase& planned);

}  // namespace harness

#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/engine/builtin.h"
#include "harness/engine/observer.h"
#include "harness/engine/phase_record.h"
#include "harness/process/progress_clock.h"
#include "harness/runbook/load.h"
#include "harness/runbook/plan/plan.h"

namespace harness {

struct RunOptions {
  std::filesystem::path out;  ///< run folder: new or empty, or with `resume` the one to continue
  std::filesystem::path bin_dir;  ///< where nsa-worker, nsa-tests, nsa-bench and nsa-train lie
  bool resume = false;
  std::string build_id;  ///< of the programs, for the `hello` of builtins and test programs
  /// Programs and libraries of the build, by path relative to `bin_dir`, with their sha256; none:
  /// nothing is known of them, and nothing is checked.
  std::optional<std::map<std::string, std::string>> programs = {};
  RunInfo info;  ///< for run.json; an empty id, start time, runbook name or hash is filled in
  std::map<std::string, std::string> attached;  ///< further files of a new run: path -> content
  nlohmann::json environment =
      nlohmann::json::object();  ///< for environment.json; a run is resumed with the same
                                 ///< /build/build_id only
  std::function<nlohmann::json()>
      device_facts;  ///< device processes and memory, for autopsies; may be empty
  std::function<std::string()> device_held = {};  ///< who holds device memory; may be empty
  /// All processes of a phase that the evidence in the run folder asks for so far: those of its
  /// first look and of the stages of `PlannedPhase::further` that are due. Asked whenever a phase
  /// with such stages has no process left to run; empty: no stage is ever due.
  std::function<std::vector<PlannedGroup>(const std::filesystem::path&, const PlannedPhase&)>
      asked = {};
  /// Which criterion that a phase needs is not PASS so far, and why (unmet_criteria of
  /// harness/verdict over the run so far); empty: the phase may run. Without it no phase that needs
  /// criteria runs.
  std::function<std::string(const PlannedPhase&)> unmet_criteria = {};
  /// Measures a group of nsa-worker (case line, result file) where no process is to be started for
  /// it: for counting over many runs, see process/resident_worker.h. Throws Error.
  std::function<void(const std::string&, const std::filesystem::path&)> resident = {};
  std::vector<std::string> nodes = {};  ///< of the allocation of Slurm; none: outside of one
  WatchPolicy
      limits;  ///< stall constants; timeout_s, first_step_s and rate_floor come from the phases
};

struct RunReport {
  std::vector<PhaseRecord> phases;  ///< in the order of the plan; those that ended
  int signal = 0;  ///< that ended the run (INT, TERM, HUP, QUIT): exit 128 + signal, resumable
};

/// Executes a plan and leaves the run folder of harness/evidence/README.md up to the phases;
/// results, reports and ledger are derived from it afterwards. Phases run in the order of the plan,
/// one process per group.
///
/// Throws ConfigError (exit 2) when `out` holds leftovers, or, resuming, when runbook, plan or
/// build id are not those of the folder; Error (exit 3) when another engine works in it or a file
/// cannot be written. After an Error, a signal or kill -9 at any time the run continues with
/// `resume`: groups with valid evidence and a recorded outcome are reused, all others run again,
/// their old files kept as GROUP.aN.*.
RunReport run(const RunOptions& options, const Runbook& runbook, const Kinds& kinds,
              const Plan& plan, const Builtins& builtins, Observer& observer);

}  // namespace harness

#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "harness/engine/engine.h"
#include "harness/engine/phase_record.h"
#include "harness/process/os/fd.h"

namespace harness {

/// The run folder as the engine writes it: one engine at a time, files replaced atomically, nothing
/// ever lost.
class RunDir {
 public:
  /// Opens and locks the folder. Throws ConfigError for leftovers and for a run that has ended,
  /// Error when it is locked or cannot be used.
  RunDir(const std::filesystem::path& out, bool resume);

  /// Writes runbook, kinds, plan, environment and run.json, or, when the run was begun before,
  /// checks that they are the same. Throws ConfigError naming what differs.
  void begin(const RunOptions& options, const Runbook& runbook, const Kinds& kinds,
             const Plan& plan);

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path phase_dir(const std::string& phase) const {
    return root_ / "phases" / phase;
  }

  /// The marker of a group's processes; a prefix of it, `marker_prefix`, is common to all of this
  /// folder.
  std::string marker(const std::string& phase, const std::string& group) const;
  std::string marker_prefix() const { return root_.string() + "|"; }

  /// Records of earlier starts; none when there is none or it is damaged.
  std::optional<PhaseRecord> phase_record(const std::string& phase) const;
  std::optional<GroupOutcome> group_outcome(const std::string& phase,
                                            const std::string& group) const;
  void write_phase_record(const PhaseRecord& record) const;
  void write_group_outcome(const std::string& phase, const GroupOutcome& outcome) const;

  /// GROUP.* -> GROUP.aN.* with the next free N, or with that of a call that was cut off. Returns
  /// N; 0 when there was nothing.
  int set_aside(const std::string& phase, const std::string& group) const;
  /// Number of attempts that were set aside.
  int attempts_aside(const std::string& phase, const std::string& group) const;
  /// Wall time of those attempts; of one that was cut off without an outcome, to its last line.
  double seconds_aside(const std::string& phase, const std::string& group) const;
  /// Wall time of an attempt to its last line; 0: the attempt that counts.
  double seconds_written(const std::string& phase, const std::string& group, int attempt = 0) const;

 private:
  void check_same(const std::string& file, const std::string& text) const;
  void check_origin(const RunOptions& options) const;
  std::vector<std::string> files_of(const std::string& phase, const std::string& group) const;

  std::filesystem::path root_;
  Fd lock_;
};

}  // namespace harness

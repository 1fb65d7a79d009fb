#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "harness/bisect/search.h"

/// What a trial does at a commit: builds it, runs the phase of the criterion, reads its verdict.
namespace harness::bisect {

struct TrialPlan {
  std::filesystem::path work;     ///< trials.json, bin/, logs/, runs/ and the worktree tree/
  std::filesystem::path program;  ///< nsa-validate that judges pairs of builds
  std::vector<std::string> more;  ///< further options of each run: --configs, --set
  std::string runbook, phase, criterion;
  /// The phase compares two builds (kind binaries_ab): each commit against GOOD, in pairs. Else
  /// each commit's own nsa-validate runs the phase.
  bool paired = false;
  std::string good;                              ///< whole hash
  std::string build;                             ///< shell command; its folder is the worktree
  std::filesystem::path bin = "build/gate/bin";  ///< where it leaves the programs
  int runs = 2;                                  ///< at most so many while undecided
};

/// Trials by commit, kept in WORK/trials.json after each of them, so that a search that was
/// interrupted goes on where it was. Programs stay in WORK/bin/COMMIT.
class Trials {
 public:
  /// Reads what an earlier search left. Throws ConfigError where WORK belongs to another search.
  explicit Trials(TrialPlan plan);

  /// The trial of a commit that is checked out in WORK/tree: the one that was made before, if it
  /// was decided.
  Trial at(const std::string& commit);

 private:
  std::filesystem::path programs_of(const std::string& commit) const;
  std::string build(const std::string& commit) const;
  Trial run(const std::string& commit) const;
  Trial run_once(const std::string& commit, int number) const;
  std::vector<std::string> call(const std::string& commit, const std::filesystem::path& out) const;
  void save() const;

  TrialPlan plan_;
  std::map<std::string, Trial> made_;
};

}  // namespace harness::bisect

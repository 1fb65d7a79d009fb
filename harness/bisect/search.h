#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

/// Which commit turned a criterion: git chooses the commits (git bisect in a worktree of its own),
/// a trial decides for each whether the criterion holds there.
namespace harness::bisect {

enum class Outcome { kGood, kBad, kUndecided, kNotBuilt };

/// What was found at one commit.
struct Trial {
  std::string commit;  ///< whole hash
  Outcome outcome = Outcome::kUndecided;
  std::string reason;     ///< the criterion's, or why there is none
  std::string run;        ///< run folder; empty: nothing ran
  bool measured = false;  ///< decided by samples, so it may err with the level of the verdict
};

/// "good", "bad", "undecided", "not built"
std::string to_string(Outcome outcome);

struct Range {
  std::filesystem::path repository;  ///< any folder of it; its files are not touched
  std::filesystem::path tree;        ///< the worktree that the search uses; made if it is not there
  std::string good, bad;             ///< whole hashes; good is an ancestor of bad
};

/// Commits between good and bad, bad included: as many as git would look at.
int64_t commits_between(const Range& range);

/// The whole hash of a commit. Throws ConfigError naming `what` where there is none.
std::string commit_of(const std::filesystem::path& repository, const std::string& what);

struct Found {
  std::string first_bad;            ///< empty: only commits without a decision are left
  std::vector<std::string> one_of;  ///< then it is one of these
  std::vector<Trial> trials;        ///< in the order in which they were made
  /// Two trials that contradict a single change, in words; empty: none do.
  std::string contradiction;
  /// At most this share of such searches names a wrong commit: the sum over measured trials.
  double error_rate = 0;
};

/// Called for each commit that is to be tried, in its worktree; `left`: commits that may still be
/// the first bad one.
using TestCommit = std::function<Trial(const std::string& commit, int64_t left)>;

/// Tries good and bad first, then what git bisect names; commits without a decision are skipped as
/// git bisect skips them. Afterwards tries up to `controls` commits on either side of the change,
/// to see that there is only one. Throws ConfigError where good is no ancestor of bad, or where the
/// criterion is not as claimed at one of them, and Error where git fails.
Found search(const Range& range, const TestCommit& test, int controls = 1);

}  // namespace harness::bisect

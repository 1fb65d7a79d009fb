#include "harness/bisect/search.h"

#include <algorithm>
#include <sstream>

#include "harness/bisect/worktree.h"
#include "harness/schema/error.h"
#include "harness/stats/order_statistics.h"

namespace harness::bisect {
namespace fs = std::filesystem;
namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    if (!line.empty()) lines.push_back(line);
  return lines;
}

class Search {
 public:
  Search(const Range& range, const TestCommit& test) : range_(range), test_(test) {}

  Found run(int controls) {
    require_ancestor();
    make_worktree(range_.repository, range_.tree, range_.bad);
    require(range_.good, Outcome::kGood);
    require(range_.bad, Outcome::kBad);
    const Captured started = git(range_.tree, {"bisect", "start", range_.bad, range_.good});
    if (!started.ok()) throw Error("git bisect start failed: " + started.out);
    if (!ended(started)) take_steps();
    if (!found_.first_bad.empty() && controls > 0) try_controls();
    git(range_.tree, {"bisect", "reset", range_.bad});
    const double level = 1 - stats::kVerdictLevel;
    for (const Trial& trial : found_.trials) found_.error_rate += trial.measured ? level : 0;
    return found_;
  }

 private:
  void require_ancestor() const {
    if (range_.good == range_.bad)
      throw ConfigError("bisect: GOOD and BAD are the same commit " + range_.good);
    if (!git(range_.repository, {"merge-base", "--is-ancestor", range_.good, range_.bad}).ok())
      throw ConfigError("bisect: GOOD " + range_.good.substr(0, 12) + " is no ancestor of BAD " +
                        range_.bad.substr(0, 12));
  }

  Trial tried(const std::string& commit, int64_t left) {
    git_output(range_.tree, {"checkout", "--quiet", "--detach", "--force", commit});
    found_.trials.push_back(test_(commit, left));
    return found_.trials.back();
  }

  void require(const std::string& commit, Outcome wanted) {
    const Trial trial = tried(commit, commits_between(range_));
    if (trial.outcome == wanted) return;
    throw ConfigError("bisect: " + std::string(wanted == Outcome::kGood ? "GOOD " : "BAD ") +
                      commit.substr(0, 12) + " is " + to_string(trial.outcome) + " (" +
                      trial.reason + "), so there is no change to look for");
  }

  void take_steps() {
    while (true) {
      const std::string commit = first_line(git_output(range_.tree, {"rev-parse", "HEAD"}));
      const int64_t left = static_cast<int64_t>(
          lines_of(git_output(range_.tree, {"rev-list", "refs/bisect/bad", "--not",
                                            "--glob=refs/bisect/good-*"}))
              .size());
      const Trial trial = tried(commit, left);
      const char* word = trial.outcome == Outcome::kGood  ? "good"
                         : trial.outcome == Outcome::kBad ? "bad"
                                                          : "skip";
      const Captured answer = git(range_.tree, {"bisect", word, commit});
      if (ended(answer)) return;
      if (!answer.ok()) throw Error("git bisect " + std::string(word) + " failed: " + answer.out);
    }
  }

  /// Whether git has nothing more to ask.
  bool ended(const Captured& answer) {
    const std::string end = " is the first bad commit";
    for (const std::string& line : lines_of(answer.out)) {
      if (line.ends_with(end)) {
        found_.first_bad = line.substr(0, line.size() - end.size());
        return true;
      }
    }
    if (answer.out.find("first bad commit could be any of") == std::string::npos) return false;
    for (const std::string& line : lines_of(answer.out))
      if (line.size() >= 40 && line.find(' ') == std::string::npos) found_.one_of.push_back(line);
    return true;
  }

  bool was_tried(const std::string& commit) const {
    return std::ranges::any_of(found_.trials,
                               [&](const Trial& trial) { return trial.commit == commit; });
  }

  /// The commit in the middle of those that the search left out on one side of the change.
  void try_between(const std::string& from, const std::string& to, Outcome wanted) {
    std::vector<std::string> untried;
    for (const std::string& commit :
         lines_of(git_output(range_.repository, {"rev-list", "--ancestry-path", from + ".." + to})))
      if (!was_tried(commit)) untried.push_back(commit);
    if (untried.empty()) return;
    const Trial trial = tried(untried[untried.size() / 2], 1);
    if (trial.outcome == wanted || trial.outcome == Outcome::kUndecided ||
        trial.outcome == Outcome::kNotBuilt)
      return;
    found_.contradiction = "the criterion changes more than once: it is " +
                           to_string(trial.outcome) + " at " + trial.commit.substr(0, 12) +
                           (wanted == Outcome::kGood ? ", before" : ", behind") +
                           " the change at " + found_.first_bad.substr(0, 12);
  }

  void try_controls() {
    try_between(range_.good, found_.first_bad + "^", Outcome::kGood);
    if (found_.contradiction.empty()) try_between(found_.first_bad, range_.bad, Outcome::kBad);
  }

  const Range& range_;
  const TestCommit& test_;
  Found found_;
};

}  // namespace

std::string to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::kGood:
      return "good";
    case Outcome::kBad:
      return "bad";
    case Outcome::kNotBuilt:
      return "not built";
    default:
      return "undecided";
  }
}

std::string commit_of(const fs::path& repository, const std::string& what) {
  const Captured answer =
      git(repository, {"rev-parse", "--verify", "--quiet", "--end-of-options", what + "^{commit}"});
  if (!answer.ok()) throw ConfigError("bisect: no commit '" + what + "' in " + repository.string());
  return first_line(answer.out);
}

int64_t commits_between(const Range& range) {
  return std::stoll(
      git_output(range.repository, {"rev-list", "--count", range.good + ".." + range.bad}));
}

Found search(const Range& range, const TestCommit& test, int controls) {
  return Search(range, test).run(controls);
}

}  // namespace harness::bisect

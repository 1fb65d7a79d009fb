#include "harness/bisect/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>

#include "harness/evidence/storage/temp_dir.h"
#include "harness/provenance/capture.h"
#include "harness/schema/error.h"

namespace harness::bisect {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// A scratch repository with commits 0, 1, ..., each of which writes its number into a file.
class SearchTest : public testing::Test {
 protected:
  static constexpr int kCommits = 20;

  void SetUp() override {
    fs::create_directories(repository());
    git("init -q -b main");
    for (int i = 0; i < kCommits; ++i) commit(i);
  }
  fs::path repository() const { return dir_ / "repository"; }

  std::string git(const std::string& arguments) const {
    const Captured answer =
        capture({"sh", "-c", "cd \"$1\" && git -c user.name=a -c user.email=a@b.c " + arguments,
                 "sh", repository().string()},
                {.with_stderr = true});
    EXPECT_TRUE(answer.ok()) << arguments << ": " << answer.out;
    return answer.out.substr(0, answer.out.find('\n'));
  }
  void commit(int number) {
    std::ofstream(repository() / "number") << number;
    git("add number");
    git("commit -q -m 'number " + std::to_string(number) + "'");
    hashes_.push_back(git("rev-parse HEAD"));
  }
  Range range(int good = 0, int bad = kCommits - 1) const {
    return {.repository = repository(),
            .tree = dir_ / "tree",
            .good = hashes_[static_cast<size_t>(good)],
            .bad = hashes_[static_cast<size_t>(bad)]};
  }
  /// Judges a commit by the number that its worktree holds.
  TestCommit by_number(const std::function<Outcome(int)>& outcome) {
    return [this, outcome](const std::string& commit, int64_t) {
      int number = -1;
      std::ifstream(dir_ / "tree/number") >> number;
      EXPECT_EQ(hashes_[static_cast<size_t>(number)], commit) << "the worktree is at the commit";
      tried_.push_back(number);
      return Trial{.commit = commit,
                   .outcome = outcome(number),
                   .reason = "number " + std::to_string(number),
                   .run = {},
                   .measured = true};
    };
  }
  Outcome static changed_at(int change, int number) {
    return number >= change ? Outcome::kBad : Outcome::kGood;
  }

  TempDir dir_;
  std::vector<std::string> hashes_;
  std::vector<int> tried_;
};

TEST_F(SearchTest, EveryChangeIsFoundInFewTrials) {
  for (const int change : {1, 7, 8, 13, 19}) {
    tried_.clear();
    const Found found = search(range(), by_number([&](int n) { return changed_at(change, n); }));
    EXPECT_EQ(found.first_bad, hashes_[static_cast<size_t>(change)]) << change;
    EXPECT_EQ(found.contradiction, "");
    EXPECT_LE(tried_.size(), 2U + 5U + 2U) << "both ends, log2 of 19, a control on either side";
    EXPECT_NEAR(found.error_rate, 0.01 * static_cast<double>(tried_.size()), 1e-12);
  }
}

TEST_F(SearchTest, CommitsThatDoNotBuildAreSkipped) {
  const std::set<int> broken = {8, 9, 10, 11};
  const Found found = search(range(), by_number([&](int n) {
                               return broken.contains(n) ? Outcome::kNotBuilt : changed_at(13, n);
                             }));
  EXPECT_EQ(found.first_bad, hashes_[13]);
}

TEST_F(SearchTest, WhereTheChangeLiesAmongSkippedCommitsAllAreNamed) {
  const std::set<int> broken = {9, 10};
  const Found found = search(range(), by_number([&](int n) {
                               return broken.contains(n) ? Outcome::kUndecided : changed_at(10, n);
                             }));
  EXPECT_EQ(found.first_bad, "");
  EXPECT_THAT(found.one_of, testing::UnorderedElementsAre(hashes_[9], hashes_[10], hashes_[11]));
}

TEST_F(SearchTest, MergesArePartOfTheHistory) {
  git("checkout -q -b side HEAD~10");
  std::ofstream(repository() / "other") << 1;
  git("add other");
  git("commit -q -m side");
  const std::string side = git("rev-parse HEAD");
  git("checkout -q main");
  git("merge -q --no-ff -m merged side");
  Range all = range();
  all.bad = git("rev-parse HEAD");
  const Found found = search(all, [&](const std::string& commit, int64_t) {
    const bool bad = fs::exists(dir_ / "tree/other");
    return Trial{
        .commit = commit, .outcome = bad ? Outcome::kBad : Outcome::kGood, .reason = {}, .run = {}};
  });
  EXPECT_EQ(found.first_bad, side);
  EXPECT_EQ(found.error_rate, 0) << "exact trials";
}

TEST_F(SearchTest, ACriterionThatChangesTwiceIsNamed) {
  // Bad from 12 on, and already from 1 to 8, of which the search itself looks at none but 9 and on.
  const Found found = search(range(), by_number([&](int n) {
                               return n >= 1 && n <= 8 ? Outcome::kBad : changed_at(12, n);
                             }));
  EXPECT_EQ(found.first_bad, hashes_[12]);
  EXPECT_THAT(found.contradiction, HasSubstr("changes more than once: it is bad at "));
}

TEST_F(SearchTest, AnInterruptedSearchGoesOnInItsWorktree) {
  const TestCommit stops = [&](const std::string& commit, int64_t left) -> Trial {
    if (tried_.size() == 3) throw std::runtime_error("interrupted");
    return by_number([&](int n) { return changed_at(7, n); })(commit, left);
  };
  EXPECT_THROW(search(range(), stops), std::runtime_error);
  tried_.clear();
  EXPECT_EQ(search(range(), by_number([&](int n) { return changed_at(7, n); })).first_bad,
            hashes_[7]);
}

TEST_F(SearchTest, WrongEndsAreNamed) {
  const auto searched = [&](Range range, int change) {
    return [this, range, change] {
      search(range, by_number([change](int n) { return changed_at(change, n); }));
    };
  };
  EXPECT_THAT(searched(range(9, 3), 5), ThrowsMessage<ConfigError>(HasSubstr("is no ancestor")));
  EXPECT_THAT(searched(range(3, 3), 5), ThrowsMessage<ConfigError>(HasSubstr("the same commit")));
  EXPECT_THAT(searched(range(6, 9), 5),
              ThrowsMessage<ConfigError>(HasSubstr("is bad (number 6), so there is no change")));
  EXPECT_THAT(searched(range(1, 3), 5),
              ThrowsMessage<ConfigError>(HasSubstr("is good (number 3)")));
  EXPECT_THAT([&] { commit_of(repository(), "--all"); },
              ThrowsMessage<ConfigError>(HasSubstr("no commit '--all'")));
  EXPECT_EQ(git("status --porcelain"), "") << "the repository's own files are as they were";
}

}  // namespace
}  // namespace harness::bisect

#include "harness/bisect/worktree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/schema/error.h"

namespace harness::bisect {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

/// A repository of two commits; the worktree lies in its folder, as runs/ does, so that git finds
/// the user's checkout where there is no other.
class WorktreeTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(repository());
    shell("git init -q -b main && git config user.name a && git config user.email a@b.c");
    shell("echo 1 > number && git add number && git commit -q -m one");
    shell("echo 2 > number && git commit -q -a -m two");
    commit_ = shell("git rev-parse HEAD~1");
  }
  /// Nothing in here may touch what the user checked out.
  void TearDown() override {
    EXPECT_EQ(shell("git rev-parse --abbrev-ref HEAD"), "main");
    EXPECT_EQ(shell("cat number; git status --porcelain -uno"), "2");
  }
  fs::path repository() const { return dir_ / "repository"; }
  fs::path tree() const { return repository() / "runs/tree"; }

  std::string shell(const std::string& command) const {
    const Captured ran =
        capture({"sh", "-c", "cd \"$1\" && " + command, "sh", repository()}, {.with_stderr = true});
    EXPECT_TRUE(ran.ok()) << command << ": " << ran.out;
    return ran.out.substr(0, ran.out.find_last_not_of('\n') + 1);
  }
  void make() const { make_worktree(repository(), tree(), commit_); }
  void expect_whole(const std::string& state) const {
    EXPECT_NO_THROW(make()) << state;
    EXPECT_EQ(read_bytes(tree() / "number"), "1\n") << state;
    EXPECT_EQ(shell("git -C runs/tree rev-parse --show-toplevel HEAD"),
              fs::canonical(tree()).string() + "\n" + commit_)
        << state;
    EXPECT_THAT(shell("git worktree list --porcelain"), Not(HasSubstr("locked"))) << state;
  }

  TempDir dir_;
  std::string commit_;
};

TEST_F(WorktreeTest, OneThatStandsIsTakenOverWithItsBuilds) {
  expect_whole("none was there");
  write_bytes(tree() / "built", "");
  write_bytes(tree() / "number", "changed by a build");
  shell("git -C runs/tree bisect start main main~1");
  expect_whole("in a search");
  EXPECT_TRUE(fs::exists(tree() / "built"));
  EXPECT_EQ(shell("git -C runs/tree bisect log || echo none"),
            "error: We are not bisecting.\nnone");
}

/// The states in which `git worktree add` leaves the folder, killed at any of its calls.
TEST_F(WorktreeTest, OneThatAKilledGitLeftIsMadeAnew) {
  const std::string wipe = "rm -rf runs/tree && git worktree unlock runs/tree; git worktree prune";
  const std::string lock = "printf initializing > .git/worktrees/tree/locked; ";
  const std::string bare = "rm -f runs/tree/number .git/worktrees/tree/index; ";
  const std::string cut = bare + "rm .git/worktrees/tree/";
  for (const std::string& state :
       {lock + "rm -rf runs/tree", lock + "rm -rf runs/tree/.git runs/tree/number",
        lock + cut + "commondir .git/worktrees/tree/HEAD; printf 'gitd' > runs/tree/.git",
        lock + cut + "commondir .git/worktrees/tree/HEAD", lock + cut + "commondir",
        lock + bare + "echo 0000 > .git/worktrees/tree/HEAD",
        lock + "touch .git/worktrees/tree/index.lock",
        std::string("touch .git/worktrees/tree/index.lock"),
        std::string("rm -rf .git/worktrees/tree")}) {
    make();
    shell(state);
    expect_whole(state);
    expect_whole("again, behind " + state);
    shell(wipe + " 2>&1; true");
  }
}

TEST_F(WorktreeTest, WhatIsNoWorktreeOfASearchIsRefusedAndKept) {
  const auto refused = [&](const fs::path& folder, const fs::path& kept) {
    EXPECT_THAT([&] { make_worktree(repository(), folder, commit_); },
                ThrowsMessage<ConfigError>(
                    AllOf(HasSubstr(folder.string() + " is no worktree"), HasSubstr("--work"))))
        << folder;
    EXPECT_EQ(read_bytes(kept), "2\n") << "nothing there was touched";
  };
  refused(repository(), repository() / "number");
  shell("mkdir -p runs/tree && cp number runs/tree/notes");
  refused(tree(), tree() / "notes");
  write_bytes(tree() / ".git", "");
  refused(tree(), tree() / "notes");
  shell("rm -rf runs/tree && git clone -q . runs/tree");
  refused(tree(), tree() / "number");
  shell("git -C runs/tree worktree add -q --detach ../other HEAD");
  refused(repository() / "runs/other", repository() / "runs/other/number");
}

}  // namespace
}  // namespace harness::bisect

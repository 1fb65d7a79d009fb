#include "harness/provenance/build/git.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/testing/paths.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/provenance/capture.h"

namespace harness {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
namespace fs = std::filesystem;

bool git(const TempDir& dir, std::vector<std::string> arguments) {
  std::vector<std::string> argv = {"git",         "-C", dir.path().string(), "-c",
                                   "user.name=n", "-c", "user.email=e"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return capture(argv).ok();
}

TEST(Git, CleanThenDirty) {
  TempDir dir;
  ASSERT_TRUE(git(dir, {"init", "-q", "-b", "trunk"}));
  write_bytes(dir / "a.txt", "a");
  write_bytes(dir / "b.txt", "b b b b b b b b");
  ASSERT_TRUE(git(dir, {"add", "."}));
  ASSERT_TRUE(git(dir, {"commit", "-q", "-m", "one"}));
  GitFacts facts = git_facts(dir.path());
  EXPECT_TRUE(facts.known) << facts.problem;
  EXPECT_EQ(facts.commit.size(), 40U);
  EXPECT_EQ(facts.branch, "trunk");
  EXPECT_THAT(facts.dirty, IsEmpty());
  EXPECT_EQ(to_json(facts)["clean"], true);
  write_bytes(dir / "a.txt", "changed");
  write_bytes(dir / "new file.txt", "n");
  ASSERT_TRUE(git(dir, {"mv", "b.txt", "c.txt"}));
  facts = git_facts(dir.path());
  EXPECT_THAT(facts.dirty, ElementsAre("a.txt", "b.txt", "c.txt", "new file.txt"));
  EXPECT_EQ(to_json(facts)["clean"], false);
}

/// A checkout of two committed files, in which `a.txt` can be changed.
void make_checkout(const TempDir& dir) {
  ASSERT_TRUE(git(dir, {"init", "-q", "-b", "trunk"}));
  write_bytes(dir / "a.txt", "a\n");
  write_bytes(dir / "b.txt", "b\n");
  ASSERT_TRUE(git(dir, {"add", "."}));
  ASSERT_TRUE(git(dir, {"commit", "-q", "-m", "one"}));
}

TEST(Git, FlagsOfTheIndexHideNoChange) {
  for (const char* flag : {"--assume-unchanged", "--skip-worktree"}) {
    TempDir dir;
    make_checkout(dir);
    ASSERT_TRUE(git(dir, {"update-index", flag, "a.txt"}));
    EXPECT_THAT(git_facts(dir.path()).dirty, IsEmpty());
    write_bytes(dir / "a.txt", "changed\n");
    EXPECT_THAT(git_facts(dir.path()).dirty, ElementsAre("a.txt")) << flag;
    EXPECT_THAT(changed_since(dir.path(), "trunk").paths, ElementsAre("a.txt")) << flag;
    EXPECT_THAT(changed_lines(dir.path(), "HEAD", "a.txt"), ElementsAre("-a", "+changed")) << flag;
    fs::remove(dir / "a.txt");
    EXPECT_THAT(git_facts(dir.path()).dirty, ElementsAre("a.txt")) << flag;
  }
}

TEST(Git, VariablesAndPathOfTheCallerChangeNothing) {
  TempDir dir, other, bin;
  make_checkout(dir);
  make_checkout(other);
  const std::string commit = git_facts(dir.path()).commit;
  write_bytes(dir / "a.txt", "changed");
  write_bytes(bin / "git", "#!/bin/sh\nexit 0\n");
  fs::permissions(bin / "git", fs::perms::owner_all);
  const std::string path = std::getenv("PATH");
  setenv("GIT_DIR", (other / ".git").c_str(), 1);
  setenv("GIT_WORK_TREE", other.path().c_str(), 1);
  setenv("PATH", (bin.path().string() + ":" + path).c_str(), 1);
  const GitFacts facts = git_facts(dir.path());
  unsetenv("GIT_DIR");
  unsetenv("GIT_WORK_TREE");
  setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(facts.commit, commit) << facts.problem;
  EXPECT_THAT(facts.dirty, ElementsAre("a.txt"));
}

TEST(Git, PrivateListsOfIgnoredFilesHideNoFile) {
  TempDir dir;
  make_checkout(dir);
  write_bytes(dir / ".git/info/exclude", "*.cpp\n");
  write_bytes(dir / ".git/ignored", "*.h\n");
  ASSERT_TRUE(git(dir, {"config", "core.excludesFile", (dir / ".git/ignored").string()}));
  write_bytes(dir / "new.cpp", "");
  write_bytes(dir / "new.h", "");
  EXPECT_THAT(git_facts(dir.path()).dirty, ElementsAre("new.cpp", "new.h"));
}

TEST(Git, AFilterHidesNoChange) {
  TempDir dir;
  make_checkout(dir);
  write_bytes(dir / ".git/info/attributes", "a.txt filter=before\n");
  ASSERT_TRUE(git(dir, {"config", "filter.before.clean", "echo a"}));
  write_bytes(dir / "a.txt", "changed\n");
  EXPECT_THAT(git_facts(dir.path()).dirty, ElementsAre("a.txt"));
}

TEST(Git, ASettingThatLeadsToAnotherFolderIsNamed) {
  TempDir dir, other;
  make_checkout(dir);
  make_checkout(other);
  ASSERT_TRUE(git(dir, {"config", "core.worktree", other.path().string()}));
  const GitFacts facts = git_facts(dir.path());
  EXPECT_FALSE(facts.known);
  EXPECT_THAT(facts.problem, testing::HasSubstr("core.worktree"));
}

TEST(Git, NoCheckoutIsReportedAndNotClean) {
  TempDir dir;
  const GitFacts facts = git_facts(dir.path());
  EXPECT_FALSE(facts.known);
  EXPECT_EQ(facts.problem, "no git checkout, or one without a commit");
  EXPECT_EQ(to_json(facts)["clean"], false);
}

/// ci/pr_gate builds in linked worktrees, which have no .venv of their own.
TEST(Git, ALinkedWorktreeBelongsToItsCheckout) {
  TempDir dir;
  const fs::path main = dir / "main", linked = dir / "linked";
  fs::create_directory(main);
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {"git", "-C", main.string(), "-c", "user.name=n", "-c", "user.email=e"});
    return capture(arguments).ok();
  };
  ASSERT_TRUE(run({"init", "-q", "-b", "trunk"}));
  ASSERT_TRUE(run({"commit", "-q", "--allow-empty", "-m", "one"}));
  ASSERT_TRUE(run({"worktree", "add", "-q", "--detach", linked.string()}));
  EXPECT_EQ(main_worktree(linked), fs::canonical(main));
  EXPECT_EQ(main_worktree(main), main);
  EXPECT_EQ(main_worktree(dir / "none"), dir / "none");
}

TEST(Git, CheckoutIsFoundFromBelow) {
  EXPECT_EQ(find_checkout(fs::path(base::source_dir()) / "harness/provenance"),
            fs::path(base::source_dir()));
  EXPECT_EQ(find_checkout("/"), std::nullopt);
}

}  // namespace
}  // namespace harness

#include "harness/provenance/build/git.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  EXPECT_THAT(facts.dirty, ElementsAre("a.txt", "c.txt", "new file.txt"));
  EXPECT_EQ(to_json(facts)["clean"], false);
}

TEST(Git, NoCheckoutIsReportedAndNotClean) {
  TempDir dir;
  const GitFacts facts = git_facts(dir.path());
  EXPECT_FALSE(facts.known);
  EXPECT_EQ(facts.problem, "no git checkout, or one without a commit");
  EXPECT_EQ(to_json(facts)["clean"], false);
}

TEST(Git, CheckoutIsFoundFromBelow) {
  EXPECT_EQ(find_checkout(fs::path(base::source_dir()) / "harness/provenance"),
            fs::path(base::source_dir()));
  EXPECT_EQ(find_checkout("/"), std::nullopt);
}

}  // namespace
}  // namespace harness

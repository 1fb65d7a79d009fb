#include <gmock/gmock.h>

#include <fstream>

#include "base/testing/paths.h"
#include "harness/cli/commands/commands.h"
#include "harness/cli/testing.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/provenance/capture.h"

namespace harness::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// A scratch repository of 18 commits; from the 11th on its operators disagree with the oracle. Its
/// build leaves a program in the place of nsa-validate that writes a run of a sample, with the
/// verdict of the commit.
class BisectCommand : public testing::Test {
 protected:
  void SetUp() override {
    before_ = fs::current_path();
    fs::create_directories(dir_ / "repository");
    fs::current_path(dir_ / "repository");
    shell("git init -q -b main && git config user.name a && git config user.email a@b.c");
    for (int i = 0; i < 18; ++i)
      shell("echo " + std::string(i < 11 ? "PASS" : "FAIL") + " > verdict; echo " +
            std::to_string(i) + " > number; git add . && git commit -q -m 'change " +
            std::to_string(i) + "'");
    options_.target = "HEAD~17";
    options_.against = "HEAD";
    options_.criterion = "C-operators.mismatch";
    options_.runbook = "smoke_cpu";
    options_.configs = base::source_dir() + "/configs";
    options_.work = (dir_ / "work").string();
    options_.bin = "out";
    options_.build = "mkdir -p out; cat verdict > out/verdict; cp '" + script() +
                     "' out/nsa-validate; echo built >> '" + (dir_ / "builds").string() + "'";
  }
  void TearDown() override { fs::current_path(before_); }

  static std::string shell(const std::string& command) {
    const Captured ran = capture({"sh", "-c", command}, {.with_stderr = true});
    EXPECT_TRUE(ran.ok()) << command << ": " << ran.out;
    return ran.out;
  }
  /// Writes results.json of the sample into the folder behind --out.
  std::string script() const {
    const std::string path = (dir_ / "judge").string();
    std::ofstream(path) << R"sh(#!/bin/sh
here=$(dirname "$0")
while [ "$1" != --out ]; do shift; done
mkdir -p "$2"
echo "$2" >> "$(dirname "$2")/../ran"
python3 - "$2" "$(cat "$here/verdict")" <<'END'
import json, sys
run = json.load(open(')sh"
                        << base::source_dir() << R"sh(/reports/samples/smoke_cpu/results.json'))
for one in run['criteria']:
    if one['id'] == 'C-operators.mismatch': one['verdict'] = sys.argv[2]
json.dump(run, open(sys.argv[1] + '/results.json', 'w'))
END
)sh";
    fs::permissions(path, fs::perms::owner_all);
    return path;
  }

  TempDir dir_;
  fs::path before_;
  Options options_;
};

TEST_F(BisectCommand, NamesTheCommitAndGoesOnWithWhatWasTried) {
  const Printed text = printed(bisect_command, options_);
  EXPECT_EQ(text.exit_code, 0) << text.out;
  EXPECT_THAT(text.out, HasSubstr("change 11** is the first commit at which"));
  EXPECT_THAT(text.out, HasSubstr("Every trial is exact"));
  EXPECT_EQ(read_bytes(dir_ / "work/bisect.md"), text.out);
  const std::string builds = read_bytes(dir_ / "builds");
  const std::string ran = read_bytes(dir_ / "work/ran");
  EXPECT_EQ(printed(bisect_command, options_).out, text.out);
  EXPECT_EQ(read_bytes(dir_ / "work/ran"), ran) << "nothing runs again";
  EXPECT_EQ(read_bytes(dir_ / "builds"), builds) << "nothing is built again";
  options_.build += " ";
  EXPECT_THAT(error_of([&] { printed(bisect_command, options_); }),
              HasSubstr("holds another search"));
}

TEST_F(BisectCommand, WrongCallsAreNamed) {
  options_.criterion = "C-none";
  EXPECT_THAT(error_of([&] { printed(bisect_command, options_); }),
              HasSubstr("runbook 'smoke_cpu' has no criterion 'C-none'"));
  options_.criterion = "C-operators.mismatch";
  options_.target = "nowhere";
  EXPECT_THAT(error_of([&] { printed(bisect_command, options_); }),
              HasSubstr("no commit 'nowhere'"));
}

TEST_F(BisectCommand, ACommitThatDoesNotBuildAtAnEndIsNoTurn) {
  options_.build = "echo broken on purpose; exit 1";
  EXPECT_THAT(error_of([&] { printed(bisect_command, options_); }),
              HasSubstr("is not built (the build failed: broken on purpose"));
}

}  // namespace
}  // namespace harness::cli

#include "harness/cli/commands/version.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "harness/cli/options.h"
#include "harness/evidence/storage/temp_dir.h"

namespace harness::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(Version, NamesBuildAndCommit) {
  const TempDir dir;
  const auto write = [&](const std::string& text) {
    std::ofstream(dir / "build_id.json") << text;
    return version_text(dir.path());
  };
  EXPECT_THAT(version_text(dir.path()), HasSubstr("no build_id.json"));
  EXPECT_EQ(write(R"({"build_id": "ab12", "commit": "cd34", "compiler": "c", "flags": "", "dirty":
      ["x", "y"], "files": {}, "programs": {}})"),
            "nsa-validate build ab12, commit cd34 (2 files changed)");
  EXPECT_EQ(write(R"({"build_id": "ab12", "commit": "", "compiler": "c", "flags": "", "dirty": [],
      "files": {}, "programs": {}})"),
            "nsa-validate build ab12, commit unknown");
  EXPECT_THAT(write("{"), HasSubstr("build unknown: "));
}

TEST(Version, TheOptionEndsTheProgramWithZero) {
  const char* const argv[] = {"nsa-validate", "--version"};
  Options options;
  int exit_code = 9;
  testing::internal::CaptureStdout();
  EXPECT_FALSE(parse_options(2, argv, options, exit_code));
  EXPECT_EQ(exit_code, 0);
  EXPECT_THAT(testing::internal::GetCapturedStdout(), StartsWith("nsa-validate build "));
}

}  // namespace
}  // namespace harness::cli

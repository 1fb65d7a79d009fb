// The command around the runbook `selftest`: which faults, what is printed, what is kept.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <set>

#include "harness/cli/commands/commands.h"
#include "harness/cli/paths.h"
#include "harness/cli/testing.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"

namespace harness::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class SelftestTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.configs = shipped_configs();
    options_.out = (dir_ / "run").string();
    options_.faults = {"P24"};  // of files: needs no other program
  }
  static std::set<std::pair<std::string, fs::file_time_type>> kept() {
    std::set<std::pair<std::string, fs::file_time_type>> files;
    if (fs::is_directory(matrices_dir()))
      for (const auto& entry : fs::directory_iterator(matrices_dir()))
        files.emplace(entry.path().filename().string(), entry.last_write_time());
    return files;
  }
  TempDir dir_;
  Options options_;
};

TEST_F(SelftestTest, InjectsTheFaultsThatAreNamedAndPrintsTheirRows) {
  const auto before = kept();
  const Printed run = printed(selftest_command, options_);
  EXPECT_EQ(run.exit_code, 0) << run.out;
  EXPECT_THAT(run.out, testing::ContainsRegex("  P24 .* caught +clean "));
  EXPECT_THAT(run.out, Not(HasSubstr("  P23 ")));
  const auto results = nlohmann::json::parse(read_bytes(dir_ / "run/results.json"));
  EXPECT_EQ(results["run"]["runbook"], "selftest");
  EXPECT_TRUE(results["deviations"].empty()) << "which faults are injected is free";
  EXPECT_EQ(kept(), before) << "only a test of all faults is kept";
}

TEST_F(SelftestTest, QuietAndJsonPrintNoMatrix) {
  options_.quiet = true;
  EXPECT_EQ(printed(selftest_command, options_).out, "GO\n");
  options_.quiet = false;
  options_.json = true;
  options_.out = (dir_ / "json").string();
  const auto output = nlohmann::json::parse(printed(selftest_command, options_).out);
  EXPECT_EQ(output["verdict"]["word"], "GO");
}

/// A name that is no fault decides nothing, whatever characters it is made of.
TEST_F(SelftestTest, AnUnknownFaultIsNamedWithTheNearest) {
  options_.faults = {"P2 4"};
  const std::string error = error_of([&] { printed(selftest_command, options_); });
  EXPECT_THAT(error, HasSubstr("'P2 4'"));
  EXPECT_THAT(error, HasSubstr("did you mean 'P24'?"));
  options_.faults = {"P24\", \"P25"};
  EXPECT_THAT(error_of([&] { printed(selftest_command, options_); }), HasSubstr("P24"));
  EXPECT_FALSE(fs::exists(dir_ / "run")) << "refused before anything runs";
}

}  // namespace
}  // namespace harness::cli

// history and baseline as a user calls them, on runs that really lie in folders.
#include <gmock/gmock.h>

#include "harness/cli/commands/commands.h"
#include "harness/cli/testing.h"
#include "harness/evidence/error.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/schema/error.h"

namespace harness::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class HistoryCommandsTest : public testing::Test {
 protected:
  void SetUp() override {
    written_ = finish_run(run_);
    options_.history = (dir_ / "h.sqlite").string();
    options_.targets = {run_.string()};
  }

  Written finish_run_again() const {
    return write_bundle(run_, [](const Results& results) { return render_reports(results); });
  }

  TempDir dir_;
  fs::path run_ = dir_ / "run";
  Options options_;
  Written written_;
};

TEST_F(HistoryCommandsTest, ARunRenderedAgainIsKnown) {
  EXPECT_THAT(printed(history_import_command, options_).out, HasSubstr("imported"));
  // Drawings are not evidence: another ledger, the same run.
  const auto drawn = [](const Results&) {
    return std::map<std::string, std::string>{{"report.html", "<p>of another version</p>"}};
  };
  const Written again =
      write_bundle(run_, [](const Results& results) { return render_reports(results); }, drawn);
  ASSERT_NE(again.head, written_.head);
  ASSERT_EQ(again.evidence_head, written_.evidence_head);
  EXPECT_THAT(printed(history_import_command, options_).out, HasSubstr("known"));
  const std::string listed = printed(history_list_command, options_).out;
  EXPECT_EQ(std::count(listed.begin(), listed.end(), '\n'), 1) << listed;
}

TEST_F(HistoryCommandsTest, OneDamagedRunKeepsNoOtherOut) {
  const fs::path damaged = dir_ / "damaged";
  finish_run(damaged);
  write_bytes(damaged / "plan.json", "{}");
  options_.targets = {damaged.string(), run_.string()};
  const Printed text = printed(history_import_command, options_);
  EXPECT_EQ(text.exit_code, 6);
  EXPECT_THAT(text.out, HasSubstr("refused   " + damaged.string() + ": plan.json"));
  EXPECT_THAT(text.out, HasSubstr("imported  " + run_.string()));
}

TEST_F(HistoryCommandsTest, TrendShowsAFigureAndRefusesAnUnknownOne) {
  printed(history_import_command, options_);
  options_.metric = "speed.v2.call_ms";
  EXPECT_THAT(printed(history_trend_command, options_).out, HasSubstr("mini on "));
  options_.metric = "speed.v3.call_ms";
  EXPECT_THROW(printed(history_trend_command, options_), ConfigError);
}

TEST_F(HistoryCommandsTest, ABaselineNeedsARunThatVerifies) {
  options_.target = run_.string();
  options_.reason = "reviewed";
  write_bytes(run_ / "plan.json", "{}");
  EXPECT_THROW(printed(baseline_promote_command, options_), EvidenceError);
}

TEST_F(HistoryCommandsTest, ABaselineIsShownAndWrittenOnlyWhenAskedFor) {
  fs::create_directories(dir_ / "configs/runbooks");
  fs::create_directories(dir_ / "configs/kinds");
  options_.configs = (dir_ / "configs").string();
  options_.target = run_.string();
  options_.reason = "reviewed";
  const Printed shown = printed(baseline_promote_command, options_);
  EXPECT_EQ(shown.exit_code, 0);
  EXPECT_THAT(shown.out, HasSubstr("  speed.v2.call_ms: new -> "));
  EXPECT_THAT(shown.out, HasSubstr("nothing is written; --write would create " +
                                   (dir_ / "configs/baselines/mini").string()));
  EXPECT_FALSE(fs::exists(dir_ / "configs/baselines"));
  options_.write = true;
  EXPECT_THAT(printed(baseline_promote_command, options_).out, HasSubstr("created "));
  EXPECT_TRUE(fs::exists(dir_ / "configs/baselines/mini"));
  const std::string again = printed(baseline_promote_command, options_).out;
  EXPECT_THAT(again, HasSubstr("replaced "));
  EXPECT_THAT(again, testing::ContainsRegex("speed.v2.call_ms: [0-9.]+ ms -> [0-9.]+ ms"));
}

TEST_F(HistoryCommandsTest, APathThatDoesNotExistIsAWrongCall) {
  options_.targets = {run_.string(), (dir_ / "none").string()};
  EXPECT_THAT(error_of([&] { printed(history_import_command, options_); }),
              HasSubstr("none: no such file or folder"));
  EXPECT_EQ(printed(history_list_command, options_).out, "")
      << "refused before anything is imported";
}

/// A run may verify and come from anybody: its runbook's name is no path.
TEST_F(HistoryCommandsTest, ABaselineIsWrittenWhereBaselinesAre) {
  fs::create_directories(dir_ / "configs/runbooks");
  fs::create_directories(dir_ / "configs/kinds");
  options_.configs = (dir_ / "configs").string();
  options_.target = run_.string();
  options_.reason = "reviewed";
  options_.write = true;
  nlohmann::json info = nlohmann::json::parse(read_bytes(run_ / "run.json"));
  info["runbook"] = "../../outside";
  write_bytes(run_ / "run.json", info.dump());
  EXPECT_THROW(printed(baseline_promote_command, options_), EvidenceError);
  EXPECT_FALSE(fs::exists(dir_ / "outside"));
  EXPECT_THROW(finish_run_again(), EvidenceError) << "nor can such a run be sealed";
}

}  // namespace
}  // namespace harness::cli

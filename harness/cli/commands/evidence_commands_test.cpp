#include <gmock/gmock.h>

#include "harness/cli/commands/commands.h"
#include "harness/cli/testing.h"
#include "harness/evidence/error.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/packed_run.h"
#include "harness/evidence/storage/temp_dir.h"

namespace harness::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class EvidenceCommandsTest : public testing::Test {
 protected:
  void SetUp() override {
    written_ = finish_run(run_);
    options_.target = run_.string();
  }

  /// "FILE: message" of the EvidenceError that `command` throws; empty when it throws none.
  template <class Command>
  std::string refusal(Command command) {
    try {
      printed(command, options_);
    } catch (const EvidenceError& e) {
      return e.what();
    }
    return "";
  }

  TempDir dir_;
  fs::path run_ = dir_ / "run";
  Options options_;
  Written written_;
};

TEST_F(EvidenceCommandsTest, VerifyReportsOkAndTheHead) {
  const Printed text = printed(verify_command, options_);
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, HasSubstr("evidence: ok"));
  EXPECT_THAT(text.out, HasSubstr("ledger head " + written_.head));
  options_.head = std::string(64, '0');
  EXPECT_EQ(printed(verify_command, options_).exit_code, 6);
}

TEST_F(EvidenceCommandsTest, VerifyNamesTheChangedFile) {
  write_bytes(run_ / "plan.json", read_bytes(run_ / "plan.json") + " ");
  const Printed text = printed(verify_command, options_);
  EXPECT_EQ(text.exit_code, 6);
  EXPECT_THAT(text.out, HasSubstr("plan.json"));
}

TEST_F(EvidenceCommandsTest, NamesThatUsersGiveDoNotSteerATerminal) {
  options_.out = (dir_ / "\x1b[31mred.tar").string();
  const Printed text = printed(bundle_command, options_);
  EXPECT_THAT(text.out, HasSubstr("/ [31mred.tar"));
  EXPECT_THAT(text.out, testing::Not(HasSubstr("\x1b")));
}

TEST_F(EvidenceCommandsTest, APathThatDoesNotExistIsAWrongCall) {
  options_.target = (dir_ / "none").string();
  options_.against = run_.string();
  options_.id = "C-SPEED";
  for (auto command :
       {verify_command, explain_command, report_command, bundle_command, compare_command})
    EXPECT_THAT(error_of([&] { printed(command, options_); }),
                HasSubstr("none: no such file or folder; give the folder of a run"));
}

TEST_F(EvidenceCommandsTest, ReportsThatWereNotAskedForAreNotMissed) {
  const TempDir other;
  write_mini_run(other / "run");
  write_bundle(other / "run",
               [](const Results& results) { return render_reports(results, {"json"}); });
  options_.target = (other / "run").string();
  EXPECT_FALSE(fs::exists(other / "run/report.md"));
  EXPECT_EQ(printed(verify_command, options_).exit_code, 0);
}

TEST_F(EvidenceCommandsTest, ExplainFindsTheNewestRun) {
  options_.target.clear();
  options_.id = "C-SPEED";
  const WorkingDir there(dir_.path());
  fs::create_directories("runs");
  fs::rename("run", "runs/one");
  EXPECT_THAT(printed(explain_command, options_).out, HasSubstr("C-SPEED"));
}

TEST_F(EvidenceCommandsTest, ReportRendersAgainAndKeepsTheEvidenceHead) {
  const std::string before = read_bytes(run_ / "report.md");
  write_bytes(run_ / "report.md", "of another version");
  EXPECT_EQ(printed(verify_command, options_).exit_code, 6);
  const Printed text = printed(report_command, options_);
  EXPECT_THAT(text.out, HasSubstr("evidence head " + written_.evidence_head + " (as before)"));
  EXPECT_EQ(read_bytes(run_ / "report.md"), before);
  EXPECT_TRUE(fs::exists(run_ / "report.html"));
  EXPECT_EQ(printed(verify_command, options_).exit_code, 0);
  options_.head = written_.evidence_head;
  EXPECT_EQ(printed(verify_command, options_).exit_code, 0);
}

TEST_F(EvidenceCommandsTest, ReportAndBundleGoOnWhereTheyWereKilled) {
  options_.in_place = true;
  using Command = int (*)(const Options&);
  for (const auto& [part, command] : std::map<std::string, Command>{
           {"ledger.jsonl.part", report_command}, {"evidence.tar.xz.part", bundle_command}}) {
    write_bytes(run_ / part, "cut o");
    EXPECT_EQ(printed(verify_command, options_).exit_code, 6);
    printed(command, options_);
    EXPECT_EQ(printed(verify_command, options_).exit_code, 0);
  }
}

TEST_F(EvidenceCommandsTest, ReportGoesOnWhereItWasKilledInUnpacking) {
  options_.in_place = true;
  printed(bundle_command, options_);
  fs::create_directories(run_ / "phases/speed");
  write_bytes(run_ / "phases/speed/g01.jsonl.part", "cut o");
  EXPECT_THAT(printed(verify_command, options_).out, HasSubstr("`report DIR` removes it"));
  printed(report_command, options_);
  EXPECT_EQ(printed(verify_command, options_).exit_code, 0);
  EXPECT_TRUE(is_packed(run_));
}

TEST_F(EvidenceCommandsTest, ReportRefusesRawEvidenceThatChanged) {
  write_bytes(run_ / "plan.json", read_bytes(run_ / "plan.json") + " ");
  EXPECT_THAT(refusal(report_command), HasSubstr("plan.json"));
  EXPECT_FALSE(fs::exists(run_ / "report.html"));
}

TEST_F(EvidenceCommandsTest, ReportRefusesARunThatDidNotEnd) {
  fs::remove(run_ / "ledger.jsonl");
  EXPECT_THAT(refusal(report_command), HasSubstr("the run did not end"));
}

TEST_F(EvidenceCommandsTest, ReportsOfATarStandBesideIt) {
  printed(bundle_command, options_);
  options_.target = run_.string() + ".tar";
  const WorkingDir there(dir_ / "");
  fs::rename("run", "before");
  printed(report_command, options_);
  EXPECT_EQ(read_bytes("run/report.md"), read_bytes("before/report.md"));
  EXPECT_TRUE(fs::exists("run/report.html"));
}

TEST_F(EvidenceCommandsTest, ReportsOfATarReplaceNoRun) {
  printed(bundle_command, options_);
  options_.target = run_.string() + ".tar";
  const WorkingDir there(dir_ / "");
  write_bytes(run_ / "report.md", "of another version");
  EXPECT_THAT(error_of([&] { printed(report_command, options_); }),
              HasSubstr("would replace those of the run run; call this in another folder"));
  EXPECT_EQ(read_bytes(run_ / "report.md"), "of another version");
}

TEST_F(EvidenceCommandsTest, ReportRefusesATarThatWasChanged) {
  printed(bundle_command, options_);
  const fs::path tar = run_.string() + ".tar";
  std::string bytes = read_bytes(tar);
  const size_t at = bytes.find("\"word\":\"GO\"");
  ASSERT_NE(at, std::string::npos);
  write_bytes(tar, bytes.replace(at, 11, "\"word\":\"NO\""));
  options_.target = tar.string();
  const WorkingDir there(dir_ / "");
  fs::rename("run", "before");
  EXPECT_THAT(refusal(report_command), HasSubstr("results.json"));
  EXPECT_FALSE(fs::exists("run"));
}

TEST_F(EvidenceCommandsTest, CompareShowsCriteriaAndFiguresOfBothRuns) {
  finish_run(dir_ / "other");
  options_.against = (dir_ / "other").string();
  const Printed text = printed(compare_command, options_);
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out,
              HasSubstr("| C-SPEED       | PASS | 2 \\[1.998, 2.002\\] | 1.998   | PASS | "));
  EXPECT_THAT(text.out, HasSubstr("not told apart"));
  options_.json = true;
  EXPECT_THAT(printed(compare_command, options_).out, HasSubstr("\"other_hardware\": \"\""));
}

TEST_F(EvidenceCommandsTest, CompareRefusesADamagedRunAndOtherHardware) {
  finish_run(dir_ / "other");
  options_.against = (dir_ / "other").string();
  const fs::path environment = dir_ / "other/environment.json";
  const std::string before = read_bytes(environment);
  write_bytes(environment, before + " ");
  EXPECT_THAT(refusal(compare_command), HasSubstr("environment.json"));
  nlohmann::json other = nlohmann::json::parse(before);
  other["machine"]["cpu"]["model"] = "another";
  other["gpu"]["gpus"] = nlohmann::json::array();
  write_bytes(environment, other.dump());
  write_bundle(dir_ / "other", [](const Results& results) { return render_reports(results); });
  EXPECT_THROW(printed(compare_command, options_), ConfigError);
  options_.other_hardware = true;
  EXPECT_TRUE(printed(compare_command, options_).out.starts_with("**Other hardware: A ran on "));
}

TEST_F(EvidenceCommandsTest, BundleVerifiesLikeItsFolder) {
  const Printed text = printed(bundle_command, options_);
  EXPECT_EQ(text.exit_code, 0);
  options_.target = run_.string() + ".tar";
  EXPECT_THAT(text.out, HasSubstr(options_.target));
  EXPECT_THAT(printed(verify_command, options_).out, HasSubstr(written_.head));
}

TEST_F(EvidenceCommandsTest, BundleRefusesWhatDoesNotVerify) {
  const std::string whole = read_bytes(run_ / "results.json");
  write_bytes(run_ / "results.json", whole.substr(0, whole.size() / 2));
  EXPECT_THAT(refusal(bundle_command), HasSubstr("results.json: "));
  EXPECT_FALSE(fs::exists(run_.string() + ".tar"));
}

TEST_F(EvidenceCommandsTest, BundleRefusesAnUnfinishedRun) {
  fs::remove(run_ / "ledger.jsonl");
  EXPECT_THAT(refusal(bundle_command), HasSubstr("ledger.jsonl: is missing: the run did not end"));
}

TEST_F(EvidenceCommandsTest, BundleRefusesAPlaceInsideTheRun) {
  options_.out = (run_ / "phases/run.tar").string();
  EXPECT_THROW(printed(bundle_command, options_), ConfigError);
  EXPECT_EQ(printed(verify_command, options_).exit_code, 0);
}

TEST_F(EvidenceCommandsTest, AFailedBundleLeavesNothing) {
  options_.out = (dir_ / "none/run.tar").string();
  EXPECT_THROW(printed(bundle_command, options_), Error);
  EXPECT_FALSE(fs::exists(dir_ / "none"));
}

}  // namespace
}  // namespace harness::cli

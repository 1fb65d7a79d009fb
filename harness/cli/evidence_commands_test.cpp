#include <gmock/gmock.h>

#include "harness/cli/commands.h"
#include "harness/cli/testing.h"
#include "harness/evidence/error.h"
#include "harness/evidence/files.h"
#include "harness/evidence/temp_dir.h"

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

TEST_F(EvidenceCommandsTest, VerifySaysOkAndTheHead) {
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

TEST_F(EvidenceCommandsTest, ReportWritesTheSameBytesAgain) {
  const std::string before = read_bytes(run_ / "report.md");
  fs::remove(run_ / "report.md");
  EXPECT_THAT(printed(report_command, options_).out, HasSubstr("report.md"));
  EXPECT_EQ(read_bytes(run_ / "report.md"), before);
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
  EXPECT_THAT(refusal(bundle_command), HasSubstr("--damaged packs the run as it is"));
  EXPECT_FALSE(fs::exists(run_.string() + ".tar"));
  options_.damaged = true;
  EXPECT_EQ(printed(bundle_command, options_).exit_code, 0);
  options_.target = run_.string() + ".tar";
  EXPECT_EQ(printed(verify_command, options_).exit_code, 6) << "packing heals nothing";
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

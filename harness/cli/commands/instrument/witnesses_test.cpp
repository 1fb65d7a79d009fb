#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/testing/paths.h"
#include "harness/cli/commands/commands.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"

namespace harness::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

/// The shipped configs, to be changed.
class WitnessesCommand : public testing::Test {
 protected:
  WitnessesCommand() {
    fs::copy(base::source_dir() + "/configs", configs_, fs::copy_options::recursive);
  }

  struct Report {
    int exit_code = -1;
    std::string text;
  };
  Report report() const {
    Options options;
    options.configs = configs_.string();
    testing::internal::CaptureStdout();
    const int exit_code = witnesses_command(options);
    return {exit_code, testing::internal::GetCapturedStdout()};
  }

  /// Replaces `from`, which must be there, by `to`.
  void change(const std::string& file, const std::string& from, const std::string& to) const {
    std::string text = read_bytes(configs_ / file);
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write_bytes(configs_ / file, text.replace(at, from.size(), to));
  }

  const TempDir dir_;
  const fs::path configs_ = dir_ / "configs";
};

TEST_F(WitnessesCommand, EveryShippedCriterionHasOne) {
  const Report result = report();
  EXPECT_EQ(result.exit_code, 0) << result.text;
  EXPECT_THAT(result.text, HasSubstr("never seen to fail 0"));
}

TEST_F(WitnessesCommand, ACriterionWithoutOneIsNamed) {
  fs::remove(configs_ / "witnesses/gate_health.json");
  const Report result = report();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.text,
              HasSubstr("smoke_cpu C-gate.stuck: gate_health.gates.stuck_count == 0: no "
                        "witness in configs/witnesses/gate_health.json"));
}

TEST_F(WitnessesCommand, ATestThatIsNotThereShowsNothing) {
  change("witnesses/ci_status.json", "CiStatusPhase.ARedFile", "CiStatusPhase.ABlueFile");
  const Report result = report();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.text, HasSubstr("pr19_throughput C-ci: ci.tests.failed_count == 0: no test is "
                                     "called CiStatusPhase.ABlueFile"));
}

// A recorded failure is one of the criterion as it is now.
TEST_F(WitnessesCommand, ARecordedRunIsHeldAgainstTheThresholdInForce) {
  change("runbooks/dense_counterpart.json", "\"op\": \"<=\", \"value\": 0.05",
         "\"op\": \"<=\", \"value\": 0.5");
  change("witnesses/scaling.json", "C-scaling.x2", "C-smoke_cpu.steps");
  change("runbooks/train_speed.json", "\"value\": 10490", "\"value\": 20000");
  const Report result = report();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.text,
              HasSubstr("C-curves.band of dense_counterpart-h200 has the threshold 0.05"));
  EXPECT_THAT(result.text, HasSubstr("C-smoke_cpu.steps of ddp_multi_gpu-h200x2 is about "));
  EXPECT_THAT(result.text, HasSubstr("C-nsa_s2k_b16.memory"));
}

}  // namespace
}  // namespace harness::cli

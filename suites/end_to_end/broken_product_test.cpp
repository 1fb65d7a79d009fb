// The product is broken on purpose; the verdict must turn and the finding must carry the right
// code.
#include <gmock/gmock.h>

#include "suites/end_to_end/command.h"

namespace suites::end_to_end {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::HasSubstr;

struct Fault {
  const char* id;
  const char* code;
};

class BrokenProduct : public testing::TestWithParam<Fault> {};

TEST_P(BrokenProduct, IsNoGoWithItsCode) {
  const fs::path dir = fresh_dir("fault");
  const Outcome done =
      validate({"--configs", configs_with_faults(), "--runbook", "operators", "--set",
                std::string("operators.fault=") + GetParam().id, "--out", dir.string()});
  EXPECT_EQ(done.exit_code, 1) << done.output;
  EXPECT_THAT(done.output, HasSubstr("\nNO-GO\n"));
  EXPECT_EQ(results(dir)["verdict"]["word"], "NO-GO");
  EXPECT_THAT(codes(dir), Contains(GetParam().code));
  EXPECT_EQ(validate({"verify", dir.string()}).exit_code, 0) << "bad news is good evidence";
}

INSTANTIATE_TEST_SUITE_P(Faults, BrokenProduct,
                         testing::Values(Fault{"window_off_by_one", "ORACLE_MISMATCH"},
                                         Fault{"P01", "ORACLE_MISMATCH"},
                                         Fault{"forced_block_dropped", "ORACLE_MISMATCH"},
                                         Fault{"P03", "CAUSALITY_LEAK"},
                                         Fault{"P05", "MODE_DISAGREEMENT"}));

TEST(BrokenRun, ASkippedPhaseLeavesNoVerdict) {
  const fs::path dir = fresh_dir("skipped");
  const Outcome done =
      validate({"--runbook", runbook("mini"), "--skip", "gate_health", "--out", dir.string()});
  EXPECT_EQ(done.exit_code, 8) << done.output;
  EXPECT_THAT(done.output, HasSubstr("PARTIAL"));
  const nlohmann::json found = results(dir);
  for (const auto& phase : found["phases"])
    EXPECT_EQ(phase["status"], phase["id"] == "P-gate_health" ? "NOT_RUN" : "COMPLETED");
  for (const auto& criterion : found["criteria"])
    EXPECT_EQ(criterion["verdict"],
              criterion["metric"].get<std::string>().starts_with("gate_health") ? "NOT_EVALUATED"
                                                                                : "PASS");
}

TEST(BrokenRun, SamplesDeletedAfterwardsAreNamed) {
  const fs::path dir = copy_of_mini_run("deleted");
  fs::remove(dir / "phases" / "equivalence" / "g01.jsonl");
  const Outcome verified = validate({"verify", dir.string()});
  EXPECT_EQ(verified.exit_code, 6);
  EXPECT_THAT(verified.output, HasSubstr("phases/equivalence/g01.jsonl: is missing"));
}

TEST(BrokenRun, SamplesDeletedBeforeTheVerdictMakeItNoGo) {
  const fs::path dir = fresh_dir("deleted_early");
  Running engine({program(), "--runbook", runbook("mini"), "--out", dir.string()});
  ASSERT_TRUE(engine.wait_for(dir / "phases" / "environment" / "phase.json"));
  fs::remove(dir / "phases" / "environment" / "g01.jsonl");
  const Outcome done = engine.finish();
  EXPECT_EQ(done.exit_code, 6) << done.output;
  EXPECT_THAT(done.output, HasSubstr("NO-GO (evidence)"));
  EXPECT_THAT(done.output, HasSubstr("phases/environment/g01.jsonl"));
}

}  // namespace
}  // namespace suites::end_to_end

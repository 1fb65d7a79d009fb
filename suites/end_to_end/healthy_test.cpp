// A product and an instrument in good health: GO, and everything a reader does afterwards works.
#include <gmock/gmock.h>

#include "suites/end_to_end/command.h"

namespace suites::end_to_end {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

TEST(Healthy, RunIsGoAndVerifies) {
  const nlohmann::json found = results(mini_run());
  EXPECT_EQ(found["verdict"]["word"], "GO");
  EXPECT_EQ(found["verdict"]["exit"], 0);
  for (const auto& criterion : found["criteria"])
    EXPECT_EQ(criterion["verdict"], "PASS") << criterion["id"];
  const Outcome verified = validate({"verify", mini_run().string()});
  EXPECT_EQ(verified.exit_code, 0) << verified.output;
  EXPECT_THAT(verified.output, HasSubstr("evidence: ok"));
}

TEST(Healthy, OperatorsWithoutFaultAreGo) {
  const fs::path dir = fresh_dir("operators");
  const std::string book = changed_runbook("operators", "no_fault", {{R"("fault")", ""}});
  const Outcome done = validate({"--runbook", book, "--out", dir.string()});
  EXPECT_EQ(done.exit_code, 0) << done.output;
  EXPECT_TRUE(results(dir)["findings"].empty());
}

TEST(Healthy, ReportsRenderedAgainAreTheSame) {
  const fs::path dir = copy_of_mini_run("rendered");
  for (int again = 0; again < 2; ++again) {
    const Outcome done = validate({"report", dir.string()});
    EXPECT_EQ(done.exit_code, 0) << done.output;
    for (const char* file : {"report.md", "summary.md", "comment.md", "junit.xml"})
      EXPECT_EQ(read_file(dir / file), read_file(mini_run() / file)) << file;
  }
  EXPECT_EQ(validate({"verify", dir.string()}).exit_code, 0);
}

TEST(Healthy, ExplainResolvesEveryKindOfId) {
  const auto explain = [](const std::string& id) {
    const Outcome done = validate({"explain", mini_run().string(), id});
    EXPECT_EQ(done.exit_code, 0) << id << done.output;
    return done.output;
  };
  EXPECT_THAT(explain("C-gate.stuck"), HasSubstr("PASS: value 0"));
  EXPECT_THAT(explain("M-equivalence.v2.checked_count"), HasSubstr("phases/equivalence/g01.jsonl"));
  EXPECT_THAT(explain("P-gate_health"), HasSubstr("COMPLETED"));
  EXPECT_THAT(explain("A-plan.json"), HasSubstr("sha256"));
  const Outcome unknown = validate({"explain", mini_run().string(), "C-gate.stuk"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.output, HasSubstr("did you mean 'C-gate.stuck'?"));
}

TEST(Healthy, BundleIsDeterministicAndVerifies) {
  const fs::path first = fresh_dir("first.tar"), second = fresh_dir("second.tar");
  ASSERT_EQ(validate({"bundle", mini_run().string(), "--out", first.string()}).exit_code, 0);
  const fs::path moved = copy_of_mini_run("moved");
  ASSERT_EQ(validate({"bundle", moved.string(), "--out", second.string()}).exit_code, 0);
  EXPECT_TRUE(read_file(first) == read_file(second));
  const Outcome verified = validate({"verify", first.string()});
  EXPECT_EQ(verified.exit_code, 0) << verified.output;
  const Outcome explained = validate({"explain", first.string(), "P-gate_health"});
  EXPECT_EQ(explained.exit_code, 0) << explained.output;
}

}  // namespace
}  // namespace suites::end_to_end

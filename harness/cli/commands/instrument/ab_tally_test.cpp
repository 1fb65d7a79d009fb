#include "harness/cli/commands/instrument/ab_tally.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "harness/schema/error.h"

namespace harness::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::ThrowsMessage;

class AbTallyTest : public testing::Test {
 protected:
  ~AbTallyTest() override { std::filesystem::remove(file_); }
  AbTally tally() const { return {header_, file_}; }

  const std::filesystem::path file_ =
      testing::TempDir() + "/" + std::to_string(::getpid()) + "_tally.jsonl";
  json header_ = {{"runbook", "ab"}, {"device", "cpu"}, {"args", {{"slowdown_pct", 3}}}};
};

const AbRow kEqual = {.seed = 1, .verdict = "EQUIVALENT", .criterion = "PASS", .figure = {}};
const AbRow kSlower = {.seed = 2, .verdict = "SLOWER", .criterion = "FAIL", .figure = {}};

TEST_F(AbTallyTest, CountsWithTheSharesThatRemainPossible) {
  AbTally counted = tally();
  EXPECT_EQ(counted.text(), "no run ended\n");
  for (int i = 0; i < 19; ++i) counted.add(kSlower, 0.5);
  counted.add(kEqual, 0.5);
  const json all = counted.as_json();
  EXPECT_EQ(all["runs"], 20);
  EXPECT_EQ(all["figure"]["SLOWER"]["runs"], 19);
  EXPECT_NEAR(all["figure"]["SLOWER"]["share_at_least"].get<double>(), 1 - .216107, 1e-6);
  EXPECT_EQ(all["criterion"]["FAIL"]["runs"], 19);
  EXPECT_THAT(counted.text(), HasSubstr("SLOWER                      19    78.4 to  99.7 %"));
  EXPECT_THAT(counted.text(), HasSubstr("FASTER                       0     0.0 to  13.9 %"));
  EXPECT_EQ(counted.short_text(), "1 EQUIVALENT, 19 SLOWER");
}

TEST_F(AbTallyTest, IsCountedOnAfterACutAndOnlyOnTheSame) {
  tally().add(kEqual, 0.5);
  std::ofstream(file_, std::ios::app) << "{\"seed\":2,\"verd";
  AbTally again = tally();
  EXPECT_EQ(again.runs(), 1);
  again.add(kSlower, 0.5);
  EXPECT_EQ(tally().short_text(), "1 EQUIVALENT, 1 SLOWER");
  header_["args"]["slowdown_pct"] = 4;
  EXPECT_THAT([&] { tally(); }, ThrowsMessage<ConfigError>(HasSubstr("must be new, or counts of")));
}

Results one_run(const std::string& verdict, CriterionVerdict criterion) {
  Results results;
  Metric call, figure;
  call.name = "ab.base.call_us";
  figure.name = "ab.same_vs_base.speedup_ratio";
  figure.verdict = verdict;
  figure.value = 0.97;
  figure.details["confirmation"] = json::object();
  results.metrics = {call, figure};
  CriterionResult judged;
  judged.metric = figure.name;
  judged.verdict = criterion;
  results.criteria = {judged};
  return results;
}

TEST(AbRow, IsTheFiguresVerdictAndThatOfItsCriterion) {
  const AbRow row = row_of(one_run("SLOWER", CriterionVerdict::kFail), 7);
  EXPECT_EQ(row.verdict, "SLOWER");
  EXPECT_EQ(row.criterion, "FAIL");
  EXPECT_EQ(row.figure["value"], 0.97);
  EXPECT_EQ(row.figure["lo"], nullptr);
  EXPECT_TRUE(row.figure["confirmed"]);
}

TEST(AbRow, NothingMeasuredIsAnError) {
  Results failed = one_run("", CriterionVerdict::kNotEvaluated);
  PhaseResult phase;
  phase.reason = "g01: the worker ended";
  failed.phases = {phase};
  EXPECT_THAT([&] { row_of(failed, 1); }, ThrowsMessage<Error>(HasSubstr("the worker ended")));
  Results unjudged = one_run("SLOWER", CriterionVerdict::kFail);
  unjudged.criteria.clear();
  EXPECT_THAT([&] { row_of(unjudged, 1); }, ThrowsMessage<Error>(HasSubstr("no criterion on")));
}

}  // namespace
}  // namespace harness::cli

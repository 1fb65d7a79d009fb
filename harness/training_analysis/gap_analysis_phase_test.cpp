#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/evidence/storage/temp_dir.h"
#include "harness/phases/builtin_phases.h"
#include "harness/training_analysis/training_run.h"

namespace harness {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class GapAnalysisPhase : public testing::Test {
 protected:
  base::protocol::Transcript gap(const json& args) {
    return look_back(run_.path(), args, run_gap_analysis);
  }

  TempDir run_;
};

json gap_args(double expected) {
  return {{"of", "conform"},
          {"references",
           {{{"name", "expected"}, {"lo", expected}, {"hi", expected}, {"source", "s"}},
            {{"name", "seen"}, {"lo", 10}, {"hi", 20}, {"source", "t"}}}}};
}

const base::protocol::Finding* gap_finding(const base::protocol::Transcript& transcript) {
  return find_line<base::protocol::Finding>(transcript, [](const base::protocol::Finding& finding) {
    return finding.code == "THROUGHPUT_GAP";
  });
}

TEST_F(GapAnalysisPhase, FindsARateThatItsBoundsDoNotExcuse) {
  write_training_run(run_.path());
  const auto slow = gap(gap_args(800));
  EXPECT_EQ(end_of(slow), "ok");
  EXPECT_NEAR(metric_of(slow, "gap.reached_ratio"), .5, .0025);
  ASSERT_NE(gap_finding(slow), nullptr);
  EXPECT_THAT(gap_finding(slow)->symptom, HasSubstr("of 800 tok/s expected: x2"));
  const json rows = rows_of(slow, "gap");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_THAT(rows[0][4].get<std::string>(), HasSubstr("slower by x2"));
  EXPECT_THAT(rows[1][4].get<std::string>(), HasSubstr("faster by x2"));
  EXPECT_EQ(rows_of(slow, "causes")[0][0], "none");
  EXPECT_EQ(gap_finding(gap(gap_args(401))), nullptr) << "within the bounds";
  EXPECT_EQ(gap_finding(gap(gap_args(200))), nullptr) << "faster";
}

TEST_F(GapAnalysisPhase, WithoutARateDecidesNothing) {
  write_training_run(run_.path());
  json args = gap_args(800);
  args["of"] = "cards";
  const auto transcript = gap(args);
  EXPECT_THAT(end_of(transcript), HasSubstr("failed: cards.speed.rate_tok_s has no value"));
  EXPECT_EQ(metric_of(transcript, "gap.reached_ratio"), "absent");
  args["of"] = "nowhere";
  EXPECT_THAT(end_of(gap(args)), HasSubstr("no phase of this run measures nowhere."));
}

}  // namespace
}  // namespace harness

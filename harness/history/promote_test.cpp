#include "harness/history/promote.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/evidence/derive/derive.h"
#include "harness/evidence/mini_run.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/schema/error.h"
#include "harness/schema/write.h"

namespace harness {
namespace {

using testing::HasSubstr;

Results mini_results(const MiniRun& injected = {}) {
  const TempDir dir;
  write_mini_run(dir.path(), injected);
  return derive(dir.path());
}

std::string refusal(const Results& results, const std::string& reason = "why not") {
  try {
    make_baseline(results, reason);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "";
}

TEST(Promote, TheBaselineFitsTheRunThatSetIt) {
  const BaselineFile file = make_baseline(mini_results(), "first");
  ASSERT_EQ(file.metrics.size(), 1u);
  EXPECT_EQ(file.metrics[0].metric, "speed.v2.call_ms");
  EXPECT_LE(file.metrics[0].lo, file.metrics[0].value);
  const auto text = pretty_dump(to_json(file));
  const BaselineSet set = parse_baseline(text, "b.json", "mini", file.hardware);
  EXPECT_EQ(set.problem, "");
  const Results judged =
      mini_results({.baseline = nlohmann::json::parse(text), .criterion_on_baseline = true});
  for (const CriterionResult& c : judged.criteria)
    if (c.id == "C-SPEED-BASE") {
      EXPECT_EQ(c.verdict, CriterionVerdict::kPass) << c.reason;
    }
}

TEST(Promote, RunsThatProveNothingSetNone) {
  EXPECT_THAT(refusal(mini_results({.mismatch = true})), HasSubstr("its verdict is NO-GO"));
  EXPECT_THAT(refusal(mini_results(), " \n"), HasSubstr("--reason"));
  Results deviating = mini_results(), unknown = mini_results(), empty = mini_results();
  deviating.deviations.push_back({"D-x", "--set a=b", "X"});
  unknown.environment["build"]["build_id"] = nullptr;
  empty.metrics.clear();
  EXPECT_THAT(refusal(deviating), HasSubstr("deviates from its runbook: --set a=b"));
  EXPECT_THAT(refusal(unknown), HasSubstr("build is not known"));
  EXPECT_THAT(refusal(empty), HasSubstr("no time, rate or memory"));
}

}  // namespace
}  // namespace harness

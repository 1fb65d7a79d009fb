#include "harness/evidence/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/paths.h"
#include "harness/evidence/derive/derive.h"
#include "harness/evidence/mini_run.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"

namespace harness {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class ExplainTest : public testing::Test {
 protected:
  std::string explained(const std::string& id, const MiniRun& injected = {}) {
    finish_mini_run(dir_.path(), injected);
    return explain(RunFolder(dir_.path()), id);
  }
  TempDir dir_;
};

TEST_F(ExplainTest, PairedMetricHasFormulaSamplesFilesAndCommand) {
  const std::string text = explained("M-speed.v2_vs_v1.speedup_ratio");
  EXPECT_THAT(text, HasSubstr("Hodges-Lehmann estimate over processes of ln('v1' / 'v2')"));
  EXPECT_THAT(text, HasSubstr("speed/v1 [ms]: n = 8: 4"));
  EXPECT_THAT(text, HasSubstr("phases/speed/g08.jsonl  sha256 " +
                              sha256_file(dir_ / "phases/speed/g08.jsonl")));
  EXPECT_THAT(text, HasSubstr("n = 8"));
  EXPECT_THAT(text, HasSubstr("nsa-validate verify " + dir_.path().string()));
}

TEST_F(ExplainTest, CountsShowTheirChecksAndLines) {
  EXPECT_THAT(explained("M-conform.oracle.mismatch_count", {.mismatch = true}),
              HasSubstr("6 run; failed: oracle.sel ORACLE_MISMATCH"));
  EXPECT_THAT(explain(RunFolder(dir_.path()), "M-conform.rows_count"),
              HasSubstr("even/rows_count = 64 count"));
}

TEST_F(ExplainTest, CriterionShowsThresholdObservedAndMetric) {
  const std::string text = explained("C-SPEED");
  EXPECT_THAT(text, AllOf(HasSubstr("PASS"), HasSubstr("speed.v2_vs_v1.speedup_ratio >= 1.5 ratio"),
                          HasSubstr("runbook"), HasSubstr("formula")));
}

TEST_F(ExplainTest, PhaseArtifactDeviationAndFinding) {
  EXPECT_THAT(
      explained("P-conform", {.mismatch = true}),
      AllOf(HasSubstr("COMPLETED"), HasSubstr("--only conform"), HasSubstr("g01.jsonl  sha256")));
  const RunFolder run(dir_.path());
  EXPECT_THAT(explain(run, "F-conform.ORACLE_MISMATCH"),
              AllOf(HasSubstr("explain P-conform"), HasSubstr("compare stage by stage")));
  EXPECT_THAT(explain(run, "A-run.json"), HasSubstr("recorded"));
  write_bytes(dir_ / "environment.json", R"({"build": {"build_id": "other"}})");
  write_bundle(dir_.path(), render_mini_run);
  EXPECT_THAT(explain(RunFolder(dir_.path()), "D-build.speed"), HasSubstr("PROVENANCE_MISMATCH"));
}

TEST_F(ExplainTest, EveryIdOfTheRunIsExplained) {
  finish_mini_run(dir_.path(), {.mismatch = true});
  const RunFolder run(dir_.path());
  const Results results = read_results(run);
  const auto all = [&](const auto& items) {
    for (const auto& item : items) EXPECT_THAT(explain(run, item.id), HasSubstr(item.id));
  };
  all(results.phases), all(results.metrics), all(results.criteria), all(results.artifacts),
      all(results.findings), all(results.deviations), all(results.series);
}

/// Of a recorded run with every kind of id, so that none that a report shows is left out.
TEST(ExplainAll, EveryIdOfARecordedRunIsExplained) {
  const RunFolder run(base::source_dir() + "/reports/samples/smoke_cpu");
  const Results results = read_results(run);
  const auto all = [&](const auto& items) {
    EXPECT_FALSE(items.empty());
    for (const auto& item : items) EXPECT_THAT(explain(run, item.id), HasSubstr(item.id));
  };
  all(results.phases), all(results.criteria), all(results.series), all(results.questions);
  EXPECT_THAT(explain(run, "G-learns"), HasSubstr("decides    C-random.loss PASS: value 5.5"));
  EXPECT_THAT(explain(run, "G-operators"),
              HasSubstr("  figure   M-operators.oracle.mismatch_count = 0 count"));
  const std::string answer = explain(run, "answer");
  EXPECT_THAT(answer, HasSubstr("sentence   A small model learns real text (loss {train_text."));
  EXPECT_THAT(answer, HasSubstr("  where    C-text.loss is PASS"));
  EXPECT_THAT(answer, HasSubstr("  figure   M-train_text.loss.last20_nat = "));
  EXPECT_EQ(explain(run, "train_text.loss.last20_nat"),
            explain(run, "M-train_text.loss.last20_nat"));
  ASSERT_FALSE(results.tables.empty());
  for (const auto& table : results.tables) {
    const std::string text = explain(run, table["id"]);
    EXPECT_THAT(text, HasSubstr(table["id"].get<std::string>()));
    EXPECT_THAT(text, HasSubstr("columns    ["));
  }
  EXPECT_THROW(explain(run, results.tables[0]["id"].get<std::string>() + "x"), ConfigError);
}

TEST_F(ExplainTest, UnknownIdNamesTheNearest) {
  try {
    explained("C-SPED");
    ADD_FAILURE();
  } catch (const ConfigError& e) {
    EXPECT_THAT(e.what(), HasSubstr("no id 'C-SPED' in this run; did you mean 'C-SPEED'?"));
  }
}

TEST_F(ExplainTest, ResultsCutInHalfAreReported) {
  finish_mini_run(dir_.path());
  std::filesystem::resize_file(dir_ / "results.json", 1000);
  EXPECT_THROW(explain(RunFolder(dir_.path()), "C-SPEED"), EvidenceError);
}

TEST_F(ExplainTest, HostileTextDoesNotSteerTheTerminal) {
  const std::string text = explained("P-conform", {.case_reason = "\x1b[31mred\nline"});
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, HasSubstr("[31mred line"));
}

TEST(ExplainSeries, NamesItsLinesAndFiles) {
  const std::string sample = base::source_dir() + "/reports/samples/smoke_cpu";
  const std::string text = explain(RunFolder(sample), "S-train_text.loss");
  EXPECT_THAT(text, testing::HasSubstr("Loss over steps, nat over step"));
  EXPECT_THAT(text, testing::HasSubstr("g01, 200 points kept"));
  EXPECT_THAT(text, testing::HasSubstr("phases/train_text/g01.jsonl"));
}

}  // namespace
}  // namespace harness

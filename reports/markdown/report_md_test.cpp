#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reports/answers.h"
#include "reports/render.h"
#include "reports/testing.h"

namespace reports {
namespace {

using harness::CriterionResult;
using harness::CriterionVerdict;
using harness::Results;
using harness::StepStatus;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using testing_data::comparison;
using testing_data::criterion;
using testing_data::go;
using testing_data::section;

std::string report(const Results& r) { return render("report.md", r); }

TEST(Render, UnknownFileIsAnError) {
  try {
    render("report.pdf", go());
    FAIL();
  } catch (const std::invalid_argument& e) {
    EXPECT_THAT(e.what(), HasSubstr("'report.pdf'; known: report.md, summary.md"));
  }
}

TEST(ReportMd, TheAnswerComesFirstThenWhatToDoThenTheFacts) {
  const std::string text = report(go());
  EXPECT_THAT(text, StartsWith("# ✅ GO: Smoke\n\nOf the criteria that decide, 1 PASS, 0 FAIL, "));
  EXPECT_THAT(text, HasSubstr("\n\n**Do now:** nothing; every question"));
  EXPECT_THAT(text, HasSubstr("**GO** (exit 0): criteria 1 passed, 0 failed, 0 open |"));
  EXPECT_THAT(text, HasSubstr("| this machine only |"));
  EXPECT_LT(text.find("## Answers"), text.find("## Recommended settings"));
  EXPECT_LT(text.find("## Recommended settings"), text.find("## Next steps"));
  EXPECT_LT(text.find("## Next steps"), text.find("## Open, failed, deviating"));
  EXPECT_LT(text.find("## Open, failed, deviating"), text.find("## Acceptance criteria"));
  EXPECT_LT(text.find("## Acceptance criteria"), text.find("## Steps"));
  EXPECT_LT(text.find("## Steps"), text.find("## Results, in the order of the run"));
}

TEST(ReportMd, WhatIsForInformationIsCountedApart) {
  Results r = go();
  r.criteria.push_back(criterion("C-i", CriterionVerdict::kFail, harness::Severity::kInfo));
  EXPECT_THAT(report(r), HasSubstr("criteria 1 passed, 0 failed, 0 open; for information only: "
                                   "0 passed, 1 failed, 0 open |"));
  EXPECT_THAT(report(r), HasSubstr("| none: for information"));
}

TEST(ReportMd, FirstLineReportsWhenTheGateChangedTheCode) {
  Results r = go();
  r.verdict.gate = "advisory";
  EXPECT_THAT(report(r), StartsWith("# ✅ GO"));  // nothing was changed
  r.verdict.word = "NO-GO (undecided)";
  for (const char* file : {"report.md", "summary.md"})
    EXPECT_THAT(render(file, r),
                StartsWith("**The advisory gate turned this run's exit code into 0. "
                           "Its verdict is NO-GO (undecided).**\n"));
  EXPECT_THAT(render("comment.md", r), HasSubstr("advisory gate turned this run's exit code into"));
}

TEST(ReportMd, FirstLineReportsARunbookThatIsNotTheShippedOne) {
  Results r = go();
  r.run.runbook = "smoke_cpu";
  r.environment["runbook"] = {{"sha256", "a"}, {"shipped_sha256", "a"}, {"shipped", true}};
  EXPECT_THAT(report(r), StartsWith("# ✅ GO"));
  r.environment["runbook"] = {{"sha256", "a"}, {"shipped_sha256", "b"}, {"shipped", false}};
  const char* other = "**This is not the shipped runbook smoke";
  EXPECT_THAT(report(r), StartsWith(other));
  EXPECT_THAT(render("summary.md", r), StartsWith(other));
  EXPECT_THAT(render("comment.md", r),
              StartsWith(std::string("<!-- nsa-validate:smoke_cpu -->\n") + other));
  r.environment["runbook"]["shipped_sha256"] = nullptr;
  EXPECT_THAT(report(r), StartsWith("**This is no shipped runbook: "));
}

TEST(ReportMd, ReportsHowTheSamplesOfComparisonsWereTaken) {
  Results r = go();
  r.metrics.push_back(comparison("p.plain_ratio", "FASTER", 2));
  EXPECT_THAT(report(r), Not(HasSubstr("Samples of the comparisons")));
  harness::Metric full = comparison("p.full_ratio", "FASTER", 2);
  full.details["cache"] = "cold";
  full.details["samples"] = {{{"arm", "off"},
                              {"n", 60},
                              {"median", 2},
                              {"cycles", 3.6e6},
                              {"clock_mhz", 1800},
                              {"clock_lo_mhz", 1500},
                              {"clock_hi_mhz", 1980},
                              {"throttled", 2},
                              {"throttle_reasons", {"sw_power_cap", "<b>"}},
                              {"ran_pct", nullptr}},
                             {{"arm", "on"}, {"n", 60}, {"median", 1}, {"ran_pct", 87.3}},
                             "not a row"};
  r.metrics.push_back(full);
  const std::string text = report(r);
  EXPECT_THAT(text, HasSubstr("## Samples of the comparisons"));
  EXPECT_THAT(text, HasSubstr("1800 MHz [1500, 1980]"));
  EXPECT_THAT(text, HasSubstr("2: sw_power_cap, &lt;b&gt;"));
  EXPECT_THAT(text, Not(HasSubstr("<b>")));
  EXPECT_THAT(text, testing::ContainsRegex("cold .*on .*not available.*not available.*87.3 %"));
  EXPECT_THAT(render("summary.md", r), Not(HasSubstr("Samples of the comparisons")));
  EXPECT_THAT(text, testing::ContainsRegex("`on` . `off` .*as fast . `M-p.plain_ratio`"));
  EXPECT_THAT(text, Not(testing::ContainsRegex("as fast . `M-p.full_ratio`")))
      << "nothing is recommended for a cold cache";
}

TEST(ReportMd, WhatHasNoFigureIsNamedWithItsReasonAndIsNoRow) {
  Results r = go();
  for (const char* name : {"p.b_ratio", "p.c_ratio"}) {
    harness::Metric missing = comparison(name, "", 1);
    missing.value.reset();
    missing.null_reason = "no samples of series 'x'";
    r.metrics.push_back(missing);
  }
  const std::string named = "- no samples of series 'x': `M-p.b_ratio`, `M-p.c_ratio`\n";
  EXPECT_THAT(report(r), HasSubstr("No comparison of this step has a figure."));
  for (int i = 0; i < 30; ++i)
    r.metrics.push_back(comparison("p.a" + std::to_string(i) + "_ratio", "FASTER", 2));
  const std::string text = report(r), figures = section(text, "Figures");
  EXPECT_THAT(text, HasSubstr("2 comparisons without a figure"));
  EXPECT_THAT(text, HasSubstr(named));
  EXPECT_THAT(figures, HasSubstr(named));
  EXPECT_THAT(figures, HasSubstr(", 2 without a value"));
  EXPECT_THAT(text, Not(testing::ContainsRegex("\\| .?`M-p.b_ratio` +\\|")));
  EXPECT_THAT(text, testing::ContainsRegex("\\| `M-p.a29_ratio` +\\| `"));
  EXPECT_THAT(text, Not(HasSubstr("more rows: report.md")));
}

TEST(ReportMd, CriteriaSortedWorstFirst) {
  Results r = go();
  r.criteria = {
      criterion("C-a", CriterionVerdict::kPass), criterion("C-b", CriterionVerdict::kNotEvaluated),
      criterion("C-c", CriterionVerdict::kInconclusive), criterion("C-d", CriterionVerdict::kFail)};
  const std::string open = section(report(r), "Open, failed, deviating");
  EXPECT_LT(open.find("`C-d`"), open.find("`C-c`"));
  EXPECT_LT(open.find("`C-c`"), open.find("`C-b`"));
  EXPECT_THAT(open, Not(HasSubstr("`C-a`")));
  EXPECT_THAT(open, HasSubstr("NOT_EVALUATED: reason of C-b |"));
  EXPECT_THAT(section(report(r), "Acceptance criteria"), HasSubstr("`C-a`"));
}

TEST(ReportMd, MissingHardwareIsACondition) {
  for (const auto& [cause, consequence] :
       {std::pair{"GPU_COUNT", "| caps the verdict at CONDITIONAL GO"},
        {"GPU_BUSY", "| leaves the verdict undecided"}}) {
    Results r = go();
    r.criteria = {criterion("C-x", CriterionVerdict::kNotEvaluated)};
    r.phases.resize(1);
    r.phases[0].name = "p", r.phases[0].cause = cause;
    r.phases[0].required = harness::Required::kIfHardware;
    r.phases[0].status = StepStatus::kDeferred;
    const std::string open = section(report(r), "Open, failed, deviating");
    const std::string row = open.substr(std::min(open.find("`C-x`"), open.size()));
    EXPECT_THAT(row.substr(0, row.find('\n')), HasSubstr(consequence)) << cause;
  }
}

TEST(ReportMd, OneCauseIsSaidOnceAndTheLeastRoomComesFirst) {
  Results r = go();
  for (int i = 0; i < 100; ++i) {
    r.criteria.push_back(criterion("C-n" + std::to_string(i), CriterionVerdict::kNotEvaluated));
    r.criteria.back().reason = "phase is NOT_RUN";
  }
  EXPECT_THAT(section(report(r), "Open, failed, deviating"),
              HasSubstr("`C-n0` and 99 more of `P-p` (blocker)"));
  r = go();
  for (const auto& [id, margin] : {std::pair{"C-wide", 5.0}, {"C-near", .01}}) {
    r.criteria.push_back(criterion(id, CriterionVerdict::kPass));
    r.criteria.back().unit = "ms";
    r.criteria.back().margin = margin;
  }
  const std::string text = section(report(r), "Acceptance criteria");
  EXPECT_LT(text.find("`C-near`"), text.find("`C-wide`"));
  EXPECT_THAT(text, HasSubstr("|   1 % |"));
}

TEST(ReportMd, ThresholdsNameWhereTheyComeFrom) {
  Results r = go();
  r.criteria[0].threshold_source = "physical: ln 256";
  EXPECT_THAT(report(r), HasSubstr("| physical: ln 256 |"));
  r.criteria[0].threshold_source = "runbook";
  EXPECT_THAT(report(r), HasSubstr("| the plan "));
}

/// A runbook with a sentence and a question on the criterion C-x.
Results asking() {
  Results r = go();
  r.answer = {{"It counts {p.x_count}.", {"C-x"}, "It does not count: {p.x_count}, {p.gone_ms}."}};
  r.questions = {{"G-x", "Does it <count>?", {"C-x"}, "{p.x_count} counted"}};
  r.next_steps = {{"Count again", "nsa-validate --runbook smoke", {}}};
  return r;
}

TEST(ReportMd, SentencesHoldOnlyWhereTheirCriteriaPass) {
  Results r = asking();
  EXPECT_THAT(report(r), HasSubstr("\n\nIt counts **3**.\n\n"));
  EXPECT_THAT(report(r), HasSubstr("| Does it &lt;count&gt;? | ✅ yes  | **3** counted | `G-x` |"));
  EXPECT_EQ(answer_text(Model(r)), "It counts 3.");
  EXPECT_THAT(report(r), HasSubstr("1. Count again: `nsa-validate --runbook smoke`\n"));
  r.criteria[0].verdict = CriterionVerdict::kFail;
  EXPECT_THAT(report(r), HasSubstr("\n\nIt does not count: **3**, (not measured).\n\n"));
  EXPECT_THAT(report(r), HasSubstr("❌ no"));
  r.criteria[0].verdict = CriterionVerdict::kInconclusive;
  EXPECT_THAT(report(r), HasSubstr("❓ not decided | `C-x`, text of C-x: reason of C-x | `G-x` |"));
  r.criteria[0].verdict = CriterionVerdict::kNotEvaluated;
  EXPECT_THAT(report(r), HasSubstr("⬜ not run"));
}

TEST(ReportMd, SentencesOnStepsThatWereLeftOutAreNotTheRuns) {
  Results r = asking();
  r.criteria[0].verdict = CriterionVerdict::kNotEvaluated;
  r.phases[0].status = harness::StepStatus::kNotRun;
  EXPECT_THAT(answer_text(Model(r)), StartsWith("It does not count")) << "it was not left out";
  r.phases[0].cause = harness::kCauseSkipped;
  EXPECT_EQ(answer_text(Model(r)), "Left out: 1 of " + std::to_string(r.phases.size()) +
                                       " steps; this answer does not cover them.");
  r.answer.push_back({"A part.", {}, ""});
  EXPECT_THAT(answer_text(Model(r)), StartsWith("A part. Left out: 1 of "));
}

TEST(ReportMd, TablesOfEqualRowsStandOnce) {
  Results r = go();
  r.tables = nlohmann::json::array();
  for (const auto& [id, cell] : {std::pair{"a", 17.5}, {"b", 17.5}, {"c", 18.5}, {"d", 17.5}})
    r.tables.push_back({{"id", std::string("p.") + id},
                        {"phase", "p"},
                        {"title", "Sent"},
                        {"columns", {"MiB"}},
                        {"rows", {{cell}}}});
  const std::string text = report(r);
  EXPECT_THAT(text, HasSubstr("Every row is the same in 2 more tables: `p.b`, `p.d`.\n"));
  EXPECT_THAT(text, HasSubstr("**Sent** `p.a`"));
  EXPECT_THAT(text, HasSubstr("**Sent** `p.c`"));
  EXPECT_THAT(text, Not(HasSubstr("**Sent** `p.b`")));
}

TEST(ReportMd, WhatWasChangedOnPurposeComesBeforeWhatIsOpen) {
  Results r = go();
  r.verdict.word = "PARTIAL";
  r.criteria.push_back(criterion("C-z", CriterionVerdict::kFail, harness::Severity::kMajor));
  r.deviations = {{"D-set.p.fault", "--set p.fault=\"slow\"", "asked for"}};
  const std::string open = section(report(r), "Open, failed, deviating");
  EXPECT_LT(open.find("D-set.p.fault"), open.find("C-z"));
  EXPECT_THAT(open, HasSubstr("would cap the verdict at CONDITIONAL GO"));
  EXPECT_THAT(open, Not(HasSubstr("| caps")));
}

TEST(ReportMd, TheFactsNameRevisionLibTorchAndWhatWasLeftOut) {
  Results r = go();
  r.run.revision = "3";
  r.run.supersedes = std::string(64, 'a');
  r.environment = {{"libraries", {{"libtorch", "2.11"}}},
                   {"build", {{"check", {{"commit", "0123456789abcdef"}}}}}};
  r.phases.push_back(r.phases[0]);
  r.phases[1].name = "q", r.phases[1].cause = "SKIPPED";
  r.criteria.push_back(criterion("C-q", CriterionVerdict::kNotEvaluated));
  r.criteria[1].phase = "q";
  const std::string text = report(r);
  EXPECT_THAT(text,
              HasSubstr("criteria 1 passed, 0 failed, 0 open, 1 of steps that were left out"));
  EXPECT_THAT(text, HasSubstr("revision 3, which supersedes `aaaaaaaaaaaa`"));
  EXPECT_THAT(text, HasSubstr("commit `0123456789ab`, recorded when the programs were built"));
  EXPECT_THAT(text, HasSubstr("LibTorch 2.11"));
}

/// Where program and output lay on another machine is nobody's command.
TEST(ReportMd, TheCommandToReproduceHasNoPlacesOfThatMachine) {
  Results r = go();
  r.run.command_line = {
      "/x/bin/nsa-validate", "--runbook", "smoke", "--out", "/y/z", "--only", "p"};
  r.environment = {{"git", {{"commit", "0123456789abcdef"}}}};
  EXPECT_THAT(section(report(r), "Reproduce"),
              HasSubstr("git checkout 0123456789ab\nnsa-validate --runbook smoke --only p\n"));
}

TEST(ReportMd, RowsOfALongTableStandOnce) {
  Results r = go();
  r.tables = {{{"id", "p.t"}, {"phase", "p"}, {"title", "T"}, {"columns", {"row", "ms"}}}};
  for (int i = 1; i <= 20; ++i) r.tables[0]["rows"].push_back({"row" + std::to_string(i), i});
  const std::string text = report(r);
  EXPECT_THAT(text, HasSubstr("<summary>14 further rows</summary>"));
  for (int i = 1; i <= 20; ++i) {
    const std::string cell = "| row" + std::to_string(i) + " ";
    EXPECT_NE(text.find(cell), std::string::npos) << i;
    EXPECT_EQ(text.find(cell), text.rfind(cell)) << i;
  }
}

TEST(ReportMd, NotRunStandsBesideCompleted) {
  Results r = go();
  r.phases.push_back(r.phases[0]);
  r.phases[1].id = "P-gpu";
  r.phases[1].status = StepStatus::kDeferred;
  r.phases[1].cause = "GPU_COUNT";
  r.phases[1].reason = "needs a GPU";
  EXPECT_THAT(report(r), HasSubstr("| ⏸ DEFERRED `GPU_COUNT` | `P-gpu` |"));
  EXPECT_THAT(report(r), HasSubstr("needs a GPU |"));
}

TEST(ReportMd, EmptyResultsReportIt) {
  Results r;
  r.verdict.word = "NO-GO (undecided)";
  const std::string text = report(r);
  EXPECT_THAT(text, HasSubstr("**No step was planned.**"));
  EXPECT_THAT(text, HasSubstr("**The runbook has no criteria: nothing was decided.**"));
  EXPECT_THAT(text, HasSubstr("**No step produced a figure.**"));
  EXPECT_THAT(text, HasSubstr("**No environment was recorded.**"));
  EXPECT_THAT(text, HasSubstr("Not run for this build."));
  EXPECT_THAT(text, Not(HasSubstr("✅")));
}

TEST(ReportMd, SeveralGpusNameTheirLinks) {
  Results r = go();
  auto& gpu = r.environment["gpu"];
  gpu = {{"count", 2}, {"gpus", {{{"name", "H200"}, {"nvlinks", 18}}, {{"nvlinks", 18}}}}};
  EXPECT_THAT(report(r), HasSubstr("| 2 x H200, NVLink"));
  gpu["gpus"][1]["nvlinks"] = 0;
  EXPECT_THAT(report(r), HasSubstr("| 2 x H200, no NVLink"));
  gpu["gpus"][1].erase("nvlinks");  // recorded before
  EXPECT_THAT(report(r), Not(HasSubstr("NVLink")));
  gpu = {{"count", 1}, {"gpus", {{{"name", "H200"}, {"nvlinks", 18}}}}};
  EXPECT_THAT(report(r), Not(HasSubstr("NVLink,")));
}

TEST(ReportMd, HistoryBesideOurs) {
  Results r = go();
  r.history = nlohmann::json::array(
      {{{"metric", "p.x_count"}, {"value", 30}, {"unit", "count"}, {"source", "then"}},
       {{"metric", "p.gone_ms"}, {"value", 4}, {"unit", "ms"}, {"source", "then"}},
       "not an object"});
  EXPECT_THAT(report(r), HasSubstr("| `M-p.x_count` | 3 "));
  EXPECT_THAT(report(r), HasSubstr("not measured in this run"));
  r.history = nullptr;
  EXPECT_THAT(report(r), Not(HasSubstr("Historical")));
}

}  // namespace
}  // namespace reports

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <sstream>

#include "reports/render.h"
#include "reports/testing.h"

namespace reports {
namespace {

using harness::CriterionVerdict;
using harness::Results;
using harness::StepStatus;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using testing_data::comparison;
using testing_data::criterion;
using testing_data::go;

std::string report(const Results& r) { return render("report.md", r); }

TEST(Render, UnknownFileIsAnError) {
  try {
    render("report.pdf", go());
    FAIL();
  } catch (const std::invalid_argument& e) {
    EXPECT_THAT(e.what(), HasSubstr("'report.pdf'; known: report.md, summary.md"));
  }
}

TEST(ReportMd, VerdictFirstWithRuleWeakestAndScope) {
  const std::string text = report(go());
  EXPECT_THAT(text, StartsWith("# ✅ GO — Smoke\n\n## Executive summary\n\n- **Verdict: GO**, exit "
                               "code 0. Rule that fired: "));
  EXPECT_THAT(text, HasSubstr("- **Weakest point:** C-x PASS\n- **Scope:** this machine only\n"));
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
  EXPECT_THAT(render("comment.md", r), HasSubstr("advisory gate turned the exit code into 0"));
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
  EXPECT_THAT(text, HasSubstr("### Samples of the comparisons"));
  EXPECT_THAT(text, HasSubstr("1800 MHz [1500, 1980]"));
  EXPECT_THAT(text, HasSubstr("2: sw_power_cap, &lt;b&gt;"));
  EXPECT_THAT(text, Not(HasSubstr("<b>")));
  EXPECT_THAT(text, testing::ContainsRegex("cold .*on .*not available.*not available.*87.3 %"));
  EXPECT_THAT(render("summary.md", r), Not(HasSubstr("Samples of the comparisons")));
  EXPECT_THAT(text,
              HasSubstr("| `on` | `off`      |        2 | [1.98, 2.02] | `M-p.plain_ratio` |"));
  EXPECT_THAT(text,
              Not(HasSubstr("| `on` | `off`      |        2 | [1.98, 2.02] | `M-p.full_ratio`")))
      << "nothing is recommended for a cold cache";
}

TEST(ReportMd, CriteriaSortedWorstFirst) {
  Results r = go();
  r.criteria = {
      criterion("C-a", CriterionVerdict::kPass), criterion("C-b", CriterionVerdict::kNotEvaluated),
      criterion("C-c", CriterionVerdict::kInconclusive), criterion("C-d", CriterionVerdict::kFail)};
  const std::string text = report(r);
  EXPECT_LT(text.find("`C-d`"), text.find("`C-c`"));
  EXPECT_LT(text.find("`C-c`"), text.find("`C-b`"));
  EXPECT_LT(text.find("`C-b`"), text.find("`C-a`"));
  EXPECT_THAT(text, HasSubstr("- `C-b` NOT_EVALUATED: reason of C-b"));
}

TEST(ReportMd, ThresholdsNameWhereTheyComeFrom) {
  Results r = go();
  EXPECT_THAT(report(r), Not(HasSubstr("Where thresholds come from")));
  for (const char* id : {"C-a", "C-b", "C-c"})
    r.criteria.push_back(criterion(id, CriterionVerdict::kPass));
  const size_t last = r.criteria.size() - 1;
  r.criteria[last - 2].threshold_source = r.criteria[last].threshold_source = "physical: ln 256";
  r.criteria[last - 1].threshold_source = "runbook";
  EXPECT_THAT(report(r), HasSubstr("- physical: ln 256: `C-a`, `C-c`\n"));
  EXPECT_THAT(report(r), Not(HasSubstr("- runbook")));
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

TEST(ReportMd, RecommendsOnlyWinners) {
  Results r = go();
  r.metrics = {comparison("p.a.speedup_ratio", "FASTER", 2),
               comparison("p.b.speedup_ratio", "EQUIVALENT", 1),
               comparison("p.c.speedup_ratio", "INCONCLUSIVE", 3),
               comparison("p.d.speedup_ratio", "SLOWER", .5)};
  r.metrics.push_back(comparison("p.e.speedup_ratio", "FASTER", 9));
  r.metrics.back().withheld = "not valid, output mismatch";
  const std::string text = report(r);
  const std::string section = text.substr(text.find("## Recommended"),
                                          text.find("## Deviations") - text.find("## Recommended"));
  EXPECT_THAT(
      section,
      HasSubstr("| `on`  | `off`      |        2 | [1.98, 2.02] | `M-p.a.speedup_ratio` |"));
  EXPECT_THAT(
      section,
      HasSubstr("| `off` | `on`       |        2 | [1.98, 2.02] | `M-p.d.speedup_ratio` |"));
  for (const char* loser : {"p.b.", "p.c.", "p.e."}) EXPECT_THAT(section, Not(HasSubstr(loser)));
  r.metrics.clear();
  EXPECT_THAT(report(r), HasSubstr("None: no arm won an A/B comparison"));
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

TEST(ReportMd, MalformedTablesAndDetailsDoNotThrow) {
  Results r = go();
  r.tables = nlohmann::json::array(
      {1,
       nullptr,
       {{"id", 3}, {"columns", "x"}},
       {{"id", "t"}, {"columns", {"a"}}, {"rows", {1, {{"k", 2}}, {{1, 2}}}}}});
  r.metrics.push_back(comparison("p.a.speedup_ratio", "FASTER", 2));
  r.metrics.back().details = "text";
  r.environment = nlohmann::json::array({1, 2});
  EXPECT_NO_THROW(report(r));
}

/// Every free text of the results, set to the hostile string.
Results hostile(const std::string& text) {
  Results r = go();
  r.run.id = r.run.runbook = r.run.runbook_title = r.run.started = r.run.edition = text;
  r.run.command_line = {text};
  r.environment = {{text, text}, {"machine", {{"os", text}}}};
  r.phases[0].title = r.phases[0].reason = r.phases[0].cause = r.phases[0].run = text;
  r.metrics[0].null_reason = r.metrics[0].withheld = r.metrics[0].unit = text;
  r.metrics[0].samples = {text};
  r.criteria[0].text = r.criteria[0].reason = r.criteria[0].id = r.criteria[0].unit = text;
  r.criteria[0].verdict = CriterionVerdict::kFail;
  r.deviations = {{text, text, text}};
  r.findings = {{text, text, text, text, text, text, harness::Priority::kImmediate}};
  r.settings = {{text, text, text, text}};
  r.artifacts = {{text, text, text, 1, text}};
  r.tables = {
      {{"id", text}, {"title", text}, {"phase", text}, {"columns", {text}}, {"rows", {{text}}}}};
  r.history = {{{"metric", text}, {"value", 1}, {"unit", text}, {"source", text}}};
  r.verdict.word = r.verdict.rule = r.verdict.weakest = r.verdict.scope = text;
  r.verdict.conditions = {text};
  return r;
}

/// The text without its fenced blocks, in which nothing is markup (escape_test: Fenced).
std::string outside_fences(const std::string& text) {
  std::istringstream lines(text);
  std::string out;
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```"))
      inside = !inside;
    else if (!inside)
      out += line + "\n";
  }
  return out;
}

TEST(ReportMd, HostileStringsAreInertEverywhere) {
  const std::pair<const char*, const char*> table[] = {{"<script>x</script>", "<script>"},
                                                       {"\x1b[31mred", "\x1b"},
                                                       {"x\n# forged heading", "\n# forged"},
                                                       {"x\n| forged | row |", "\n| forged"},
                                                       {"@someone", "@someone"},
                                                       {"\xff\xfe", "\xff"},
                                                       {"--> <!--", "<!-- -"},
                                                       {"x</details>", "x</details>"}};
  for (const auto& [text, forbidden] : table)
    for (const char* file : {"report.md", "summary.md", "comment.md"})
      EXPECT_EQ(outside_fences(render(file, hostile(text))).find(forbidden), std::string::npos)
          << file << " lets through " << text;
}

/// Pipes of a row that separate cells: those without a backslash before them.
size_t separators(const std::string& line) {
  size_t count = 0;
  for (size_t i = 0; i < line.size(); ++i)
    if (line[i] == '|' && (i == 0 || line[i - 1] != '\\')) ++count;
  return count;
}

TEST(ReportMd, HostilePipesDoNotBreakTables) {
  std::istringstream lines(report(hostile("a|b`|`c")));
  size_t expected = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| ")) {
      expected = 0;
      continue;
    }
    if (expected == 0) expected = separators(line);
    EXPECT_EQ(separators(line), expected) << line;
  }
}

TEST(Render, TenThousandMetricsInTwoSeconds) {
  Results r = go();
  for (int i = 0; i < 10000; ++i) {
    r.metrics.push_back(testing_data::metric("p.m" + std::to_string(i) + "_count", i));
    if (i % 10 == 0)
      r.criteria.push_back(criterion("C-" + std::to_string(i), CriterionVerdict::kPass));
  }
  const auto start = std::chrono::steady_clock::now();
  for (const Renderer& renderer : renderers()) EXPECT_FALSE(render(renderer.file, r).empty());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));  // sanitizers too
}

}  // namespace
}  // namespace reports

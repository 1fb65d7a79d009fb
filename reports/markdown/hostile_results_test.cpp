// Results that are hostile, malformed or very large.
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
using testing_data::comparison;
using testing_data::criterion;
using testing_data::go;

TEST(ReportMd, LargeRunsStayReadable) {
  Results r = testing_data::sized({10, 300, 10, 5, 11, 5});
  for (size_t i = 1; i < r.phases.size(); ++i) r.phases[i].name = "p" + std::to_string(i);
  r.tables = nlohmann::json::array();
  for (int t = 0; t < 90; ++t) {
    nlohmann::json rows;
    for (int i = 0; i < 50; ++i) rows.push_back({i, "x"});
    r.tables.push_back({{"id", "p.t" + std::to_string(t)},
                        {"phase", r.phases[t % r.phases.size()].name},
                        {"title", "t" + std::to_string(t)},
                        {"columns", {"a", "b"}},
                        {"rows", rows}});
  }
  const auto open_lines = [](const std::string& text) {
    std::istringstream lines(text);
    int64_t count = 0, depth = 0;
    for (std::string line; std::getline(lines, line);) {
      depth += line.starts_with("<details>");
      count += depth == 0;
      depth -= line == "</details>";
    }
    return count;
  };
  EXPECT_LE(open_lines(render("report.md", r)), 400);
  EXPECT_LE(std::ranges::count(render("summary.md", r), '\n'), 60);
  EXPECT_LE(std::ranges::count(render("comment.md", r), '\n'), 40);
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
  EXPECT_NO_THROW(render("report.md", r));
}

/// Every free text of the results, set to the hostile string.
Results hostile(const std::string& text) {
  Results r = go();
  r.run.id = r.run.runbook = r.run.runbook_title = r.run.started = r.run.revision = text;
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
  r.answer = {{text, {}, text}};
  r.questions = {{text, text, {text}, text}};
  r.next_steps = {{text, text, {}}};
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
  std::istringstream lines(render("report.md", hostile("a|b`|`c")));
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

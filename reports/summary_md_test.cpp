#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "reports/render.h"
#include "reports/testing.h"

namespace reports {
namespace {

using harness::CriterionVerdict;
using harness::Results;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using testing_data::comparison;
using testing_data::criterion;
using testing_data::go;

constexpr size_t kBudget = 60'000;

/// Results whose parts are each `count` long.
struct Sizes {
  int open = 0, passed = 0, comparisons = 0, findings = 0, phases = 0, history = 0;
};

Results sized(const Sizes& sizes) {
  Results r = go();
  r.criteria.clear();
  for (int i = 0; i < sizes.open; ++i)
    r.criteria.push_back(criterion("C-open" + std::to_string(i), CriterionVerdict::kFail));
  for (int i = 0; i < sizes.passed; ++i)
    r.criteria.push_back(criterion("C-pass" + std::to_string(i), CriterionVerdict::kPass));
  for (int i = 0; i < sizes.comparisons; ++i)
    r.metrics.push_back(comparison("p.ab" + std::to_string(i) + ".speedup_ratio", "FASTER", 2));
  for (int i = 0; i < sizes.findings; ++i)
    r.findings.push_back({"F-" + std::to_string(i), "HANG", "s", "P-p", "c", "a", {}});
  for (int i = 0; i < sizes.phases; ++i) r.phases.push_back(r.phases[0]);
  for (int i = 0; i < sizes.history; ++i)
    r.history.push_back({{"metric", "p.h"}, {"value", i}, {"unit", "ms"}, {"source", "then"}});
  return r;
}

std::string summary(const Sizes& sizes) { return render("summary.md", sized(sizes)); }

TEST(SummaryMd, SmallRunIsComplete) {
  const std::string text = summary({3, 5, 2, 2, 2, 2});
  EXPECT_THAT(text, Not(HasSubstr("Not shown here")));
  EXPECT_LT(text.size(), kBudget);
}

// What is least needed for the decision goes first: history, then comparisons beyond 20, then
// recommended settings, then criteria that PASS, then COMPLETED steps; what did not pass goes last.
TEST(SummaryMd, GivesWayInOrder) {
  const std::string history = summary({5, 5, 5, 5, 5, 2000});
  EXPECT_THAT(history, HasSubstr("Not shown here: historical figures"));
  EXPECT_THAT(history, Not(HasSubstr("criteria that PASS; report.md")));

  const std::string comparisons = summary({5, 5, 2000, 5, 5, 5});
  EXPECT_THAT(comparisons, HasSubstr("Not shown here: 1980 comparisons"));
  EXPECT_THAT(comparisons, HasSubstr("Not shown here: recommended settings"));
  EXPECT_THAT(comparisons, Not(HasSubstr("criteria that PASS; report.md")));

  const std::string passed = summary({5, 2000, 5, 5, 5, 5});
  EXPECT_THAT(passed, HasSubstr("Not shown here: 1980 criteria that PASS"));
  EXPECT_THAT(passed, Not(HasSubstr("COMPLETED steps; report.md")));

  const std::string steps = summary({5, 50, 5, 5, 3000, 5});
  EXPECT_THAT(steps, HasSubstr("Not shown here: 50 criteria that PASS"));
  EXPECT_THAT(steps, HasSubstr("Not shown here: 3001 COMPLETED steps"));
  EXPECT_THAT(steps, HasSubstr("`C-open4`"));

  const std::string open = summary({2000, 50, 5, 50, 5, 5});
  EXPECT_THAT(open, HasSubstr("Not shown here: 1960 criteria that did not pass"));
  EXPECT_THAT(open, HasSubstr("Not shown here: 30 findings"));
}

TEST(SummaryMd, AlwaysInBudgetAndVerdictFirst) {
  for (const int size : {100, 1000, 5000}) {
    const std::string text = summary({size, size, size, size, size, size});
    EXPECT_LT(text.size(), kBudget) << size;
    EXPECT_THAT(text, StartsWith("# ✅ GO — Smoke\n\n## Executive summary\n\n- **Verdict: GO**"));
  }
}

TEST(SummaryMd, LastResortCutsAtALine) {
  Results r = go();
  r.verdict.conditions.assign(2000,
                              "a condition that is about one hundred characters long, so that "
                              "two thousand do not fit");
  const std::string text = render("summary.md", r);
  EXPECT_LT(text.size(), kBudget);
  EXPECT_TRUE(text.ends_with("fit\n\nThe rest did not fit; report.md has it.\n"))
      << text.substr(text.size() - 200);
}

TEST(CommentMd, UnderTwentyLinesAndFoldedDetails) {
  Results r = sized({30, 3000, 0, 0, 3000, 0});
  r.verdict.gate = "advisory";
  r.verdict.word = "NO-GO (undecided)";
  const std::string text = render("comment.md", r);
  const std::string open = text.substr(0, text.find("<details>"));
  EXPECT_LT(std::ranges::count(open, '\n'), 20);
  EXPECT_THAT(text, StartsWith("<!-- nsa-validate:smoke -->\n"));
  EXPECT_THAT(open, HasSubstr("- and 24 more\n"));
  EXPECT_LT(text.size(), 65'536u);
  EXPECT_THAT(text, Not(HasSubstr("](")));  // relative links lead nowhere in a comment
}

TEST(CommentMd, HostileLengthsNeverPassTheLimitAndWhatIsCutIsSaid) {
  Results r = go();
  r.criteria.clear();
  for (int i = 0; i < 300; ++i) {
    r.criteria.push_back(testing_data::criterion(
        "C-" + std::to_string(i) + std::string(400, '&'),
        i % 2 ? harness::CriterionVerdict::kFail : harness::CriterionVerdict::kPass));
    r.criteria.back().text = r.criteria.back().reason = std::string(5000, '<');
  }
  r.verdict.rule = r.verdict.weakest = r.verdict.scope = std::string(9000, '@');
  const std::string text = render("comment.md", r);
  EXPECT_LT(text.size(), 65'536u);
  EXPECT_TRUE(text.find("Not shown here: 150 criteria that did not pass; report.md has them.") !=
              std::string::npos);
  r.phases.assign(2000, r.phases[0]);
  for (auto& phase : r.phases) phase.status = harness::StepStatus::kFailed;
  const std::string steps = render("comment.md", r);
  EXPECT_LT(steps.size(), 65'536u);
  EXPECT_TRUE(steps.ends_with("Criteria and steps did not fit; report.md has them.\n"));
}

TEST(CommentMd, SaysWhenEverythingPasses) {
  EXPECT_THAT(render("comment.md", go()), HasSubstr("- Every criterion PASSes.\n"));
}

}  // namespace
}  // namespace reports

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reports/render.h"
#include "reports/testing.h"

namespace reports {
namespace {

using harness::CriterionVerdict;
using harness::Results;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using testing_data::criterion;
using testing_data::go;
using testing_data::sized;

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

TEST(CommentMd, HostileLengthsNeverPassTheLimitAndWhatIsCutIsReported) {
  Results r = go();
  r.criteria.clear();
  for (int i = 0; i < 300; ++i) {
    r.criteria.push_back(criterion("C-" + std::to_string(i) + std::string(400, '&'),
                                   i % 2 ? CriterionVerdict::kFail : CriterionVerdict::kPass));
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

TEST(CommentMd, ReportsWhenEverythingPasses) {
  EXPECT_THAT(render("comment.md", go()), HasSubstr("- Every criterion PASSes.\n"));
}

TEST(CommentMd, ReportsTheDecisionAndWhereItIsWeakest) {
  Results r = go();
  r.verdict.word = "NO-GO";
  r.verdict.exit = 1;
  r.verdict.rule = "a blocker FAILs";
  r.verdict.weakest = "C-x FAIL: 3 >= 5";
  r.criteria = {criterion("C-x", CriterionVerdict::kFail),
                criterion("C-y", CriterionVerdict::kPass),
                criterion("C-z", CriterionVerdict::kInconclusive, harness::Severity::kMajor)};
  const std::string text = render("comment.md", r);
  EXPECT_THAT(text, HasSubstr("NO-GO — smoke\n"));
  EXPECT_THAT(text, HasSubstr("- **Rule that fired:** a blocker FAILs\n"));
  EXPECT_THAT(text, HasSubstr("- **Weakest point:** C-x FAIL: 3 >= 5\n"));
  EXPECT_THAT(text, HasSubstr("FAIL `C-x` (blocker): reason of C-x\n"));
  EXPECT_THAT(text, HasSubstr("INCONCLUSIVE `C-z` (major): reason of C-z\n"));
  const std::string open = text.substr(0, text.find("<details>"));
  EXPECT_THAT(open, Not(HasSubstr("C-y"))) << "what passes is folded away";
  EXPECT_THAT(text.substr(open.size()), HasSubstr("C-y"));
}

/// The marker finds the comment of the same runbook again, and no name may end it early.
TEST(CommentMd, TheMarkerHoldsNothingButTheRunbooksName) {
  Results r = go();
  r.run.runbook = "a--><script>\n_B7";
  EXPECT_THAT(render("comment.md", r), StartsWith("<!-- nsa-validate:ascript_B7 -->\n"));
}

TEST(CommentMd, AnAdvisoryGateIsReportedBeforeTheVerdict) {
  Results r = go();
  r.verdict.gate = "advisory";
  EXPECT_THAT(render("comment.md", r), Not(HasSubstr("advisory gate"))) << "GO needs no pardon";
  r.verdict.word = "NO-GO (undecided)";
  EXPECT_THAT(render("comment.md", r),
              HasSubstr("-->\n**The advisory gate turned the exit code into 0.**\n\n###"));
}

}  // namespace
}  // namespace reports

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

TEST(CommentMd, TheAnswerIsOpenAndTheRestFolded) {
  Results r = sized({30, 3000, 0, 0, 3000, 0});
  const std::string text = render("comment.md", r);
  const std::string open = text.substr(0, text.find("<details>"));
  EXPECT_LT(std::ranges::count(open, '\n'), 12);
  EXPECT_THAT(text, StartsWith("<!-- nsa-validate:smoke -->\n"));
  EXPECT_THAT(open, HasSubstr("**Do now:** find out why `C-open0` (text of C-open0) FAILs"));
  EXPECT_THAT(text, HasSubstr("27 more rows: see report.md."));
  EXPECT_LE(std::ranges::count(text, '\n'), 40);
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
  EXPECT_LT(render("comment.md", r).size(), 65'536u);
  r.questions.assign(300, {std::string(300, '<'), std::string(9000, '<'), {"C-x"}, ""});
  const std::string long_questions = render("comment.md", r);
  EXPECT_LT(long_questions.size(), 65'536u);
}

TEST(CommentMd, ReportsTheDecisionAndWhatIsOpen) {
  Results r = go();
  r.verdict.word = "NO-GO";
  r.verdict.exit = 1;
  r.criteria = {criterion("C-x", CriterionVerdict::kFail),
                criterion("C-y", CriterionVerdict::kPass),
                criterion("C-z", CriterionVerdict::kInconclusive, harness::Severity::kMajor)};
  const std::string text = render("comment.md", r);
  EXPECT_THAT(text, HasSubstr("### ❌ NO-GO: Smoke\n"));
  EXPECT_THAT(text, HasSubstr("| `C-x`, text of C-x (blocker) | ❌ FAIL: reason of C-x "));
  EXPECT_THAT(text, HasSubstr("INCONCLUSIVE: reason of C-z "));
  EXPECT_THAT(text, Not(HasSubstr("C-y"))) << "what passes is not listed";
}

/// A reviewer may have nothing but the comment.
TEST(CommentMd, StandsAlone) {
  Results r = go();
  r.environment = {{"gpu", {{"count", 2}, {"gpus", {{{"name", "H200"}}}}}},
                   {"git", {{"commit", "0123456789abcdef"}}}};
  r.criteria.push_back(criterion("C-z", CriterionVerdict::kInconclusive));
  const std::string text = render("comment.md", r);
  EXPECT_THAT(text,
              HasSubstr("Measured on 2 x H200; commit `0123456789ab`; 1.5 s; run `smoke-1`."));
  EXPECT_THAT(text, HasSubstr("1. **Decide** `C-z` with more samples: "));
}

TEST(CommentMd, LeavesOutWhatIsAnsweredWithYesFirst) {
  Results r = go();
  r.verdict.gate = "advisory";
  r.verdict.word = "NO-GO (undecided)";
  r.criteria = {criterion("C-no", CriterionVerdict::kInconclusive),
                criterion("C-yes", CriterionVerdict::kPass)};
  for (int i = 0; i < 20; ++i)
    r.questions.push_back({"G-" + std::to_string(i), "Question?", {i < 19 ? "C-yes" : "C-no"}, ""});
  const std::string text = render("comment.md", r);
  EXPECT_LE(std::ranges::count(text, '\n'), 40);
  EXPECT_THAT(text, HasSubstr("not decided"));
  EXPECT_THAT(text, HasSubstr("`G-19`"));
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
  EXPECT_THAT(
      render("comment.md", r),
      HasSubstr("-->\n**The advisory gate turned this run's exit code into 0. Its verdict is "
                "NO-GO (undecided).**\n\n###"));
}

}  // namespace
}  // namespace reports

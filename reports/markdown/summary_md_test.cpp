#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reports/render.h"
#include "reports/testing.h"

namespace reports {
namespace {

using harness::Results;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using testing_data::go;
using testing_data::sized;
using testing_data::Sizes;

constexpr size_t kBudget = 60'000;

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

}  // namespace
}  // namespace reports

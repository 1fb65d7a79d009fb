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

TEST(SummaryMd, ASmallRunIsComplete) {
  const std::string text = summary({3, 5, 2, 2, 2, 2});
  EXPECT_THAT(text, Not(HasSubstr("more rows")));
  for (const char* part : {"## Answers", "## Next steps", "`C-open2`"})
    EXPECT_THAT(text, HasSubstr(part));
}

TEST(SummaryMd, ALargeOneSaysWhatItLeavesOut) {
  const std::string text = summary({2000, 50, 5, 50, 5, 5});
  EXPECT_THAT(text, HasSubstr("1992 more rows: see report.md."));
  EXPECT_LE(std::ranges::count(text, '\n'), 60);
}

TEST(SummaryMd, AlwaysInBudgetAndTheVerdictFirst) {
  for (const int size : {100, 1000, 5000}) {
    const std::string text = summary({size, size, size, size, size, size});
    EXPECT_LT(text.size(), kBudget) << size;
    EXPECT_THAT(text, StartsWith("# ✅ GO: Smoke\n\n"));
  }
}

TEST(SummaryMd, LastResortCutsAtALine) {
  Results r = go();
  r.answer.assign(2000, {"a sentence of fifty characters, so that they do not fit", {}, ""});
  r.questions.assign(2000, {"G-x", "is it a question of about fifty characters?", {"C-x"}, ""});
  const std::string text = render("summary.md", r);
  EXPECT_LT(text.size(), kBudget);
  EXPECT_TRUE(text.ends_with("\nThe rest did not fit; report.md has it.\n"));
}

}  // namespace
}  // namespace reports

// Which settings a report recommends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reports/render.h"
#include "reports/testing.h"

namespace reports {
namespace {

using harness::CriterionResult;
using harness::Results;
using testing::HasSubstr;
using testing::Not;
using testing_data::comparison;
using testing_data::go;
using testing_data::section;

std::string report_of(const Results& r) { return render("report.md", r); }

TEST(RecommendedSettings, AreOnlyOfWinners) {
  Results r = go();
  r.metrics = {comparison("p.a.speedup_ratio", "FASTER", 2),
               comparison("p.b.speedup_ratio", "EQUIVALENT", 1),
               comparison("p.c.speedup_ratio", "INCONCLUSIVE", 3),
               comparison("p.d.speedup_ratio", "SLOWER", .5)};
  r.metrics.push_back(comparison("p.e.speedup_ratio", "FASTER", 9));
  r.metrics.back().withheld = "not valid, output mismatch";
  const std::string text = report_of(r);
  const std::string won = section(text, "Recommended settings");
  EXPECT_THAT(
      won,
      HasSubstr("| `on`  | `off`      | 2x \\[1.98, 2.02\\] as fast in 1 of 5 cases | `M-p.a."));
  EXPECT_THAT(
      won,
      HasSubstr("| `off` | `on`       | 2x \\[1.98, 2.02\\] as fast in 1 of 5 cases | `M-p.d."));
  for (const char* loser : {"p.b.", "p.c.", "p.e."}) EXPECT_THAT(won, Not(HasSubstr(loser)));
  r.metrics.clear();
  EXPECT_THAT(report_of(r), HasSubstr("None: no arm won an A/B comparison"));
}

TEST(RecommendedSettings, AreOfNoArmThatLostToAThird) {
  Results r = go();
  r.metrics = {comparison("p.a.speedup_ratio", "FASTER", 3),
               comparison("p.b.speedup_ratio", "SLOWER", .5)};
  r.metrics[1].details["baseline"]["arm"] = "best";
  const std::string won = section(report_of(r), "Recommended settings");
  EXPECT_THAT(won, HasSubstr("| `best` | `on` "));
  EXPECT_THAT(won, Not(HasSubstr("`off`")));
  r.metrics[1].phase = "q";
  EXPECT_THAT(section(report_of(r), "Recommended settings"), HasSubstr("`off`"));
}

TEST(RecommendedSettings, AreWhatAUserCanSet) {
  Results r = go();
  r.metrics = {comparison("p.a.speedup_ratio", "FASTER", 3),
               comparison("p.b.speedup_ratio", "SLOWER", .5)};
  r.metrics[0].details["candidate"]["setting"] = "NSA_X=1";
  r.metrics[0].details["baseline"]["setting"] = "NSA_X=0";
  r.metrics[1].details["candidate"]["setting"] = "NSA_X=1";
  r.metrics[1].details["baseline"]["arm"] = "by hand";
  const std::string won = section(report_of(r), "Recommended settings");
  EXPECT_THAT(won, HasSubstr("| `NSA_X=1` (`on`) | `NSA_X=0` (`off`) | 3x "));
  EXPECT_THAT(won, Not(HasSubstr("by hand"))) << "nobody can choose it, faster or not";
}

TEST(RecommendedSettings, StandOnceForAllCasesOfAStep) {
  Results r = go();
  r.metrics = {comparison("p.a.speedup_ratio", "FASTER", 3),
               comparison("p.b.speedup_ratio", "FASTER", 2),
               comparison("p.c.speedup_ratio", "SLOWER", .25)};
  r.metrics.push_back(comparison("q.a.speedup_ratio", "FASTER", 4));
  r.metrics.back().phase = "q";
  const std::string won = section(report_of(r), "Recommended settings");
  EXPECT_THAT(won, HasSubstr("2x \\[1.98, 2.02\\] as fast in 2 of 3 cases | `M-p.b."));
  EXPECT_THAT(won, Not(HasSubstr("M-p.a.")));
  EXPECT_THAT(won, HasSubstr("as fast in 1 of 3 cases | `M-p.c.")) << "the other arm won that";
  EXPECT_THAT(won, HasSubstr("as fast | `M-q.a.")) << "another step";
  r.metrics[2].verdict = "INCONCLUSIVE";
  EXPECT_THAT(section(report_of(r), "Recommended settings"), HasSubstr("in 2 of 3 cases"));
  r.metrics.erase(r.metrics.begin() + 2);
  EXPECT_THAT(section(report_of(r), "Recommended settings"),
              HasSubstr("as fast, the least of 2 cases | `M-p.b."));
}

TEST(RecommendedSettings, AreNoYardstick) {
  Results r = go();
  r.metrics = {comparison("p.a.speedup_ratio", "SLOWER", .96),
               comparison("p.b.speedup_ratio", "SLOWER", .95)};
  EXPECT_THAT(section(report_of(r), "Recommended settings"), HasSubstr("M-p.a."));
  CriterionResult share = r.criteria[0];
  share.metric = "p.a.speedup_ratio";
  share.op = ">=";
  share.unit = "ratio";
  share.threshold = .97;
  r.criteria = {share};
  EXPECT_THAT(report_of(r), HasSubstr("None: no arm won an A/B comparison"))
      << "what both pairs cost is judged against the same baseline";
  r.criteria[0].threshold = 1.5;
  EXPECT_THAT(section(report_of(r), "Recommended settings"), HasSubstr("M-p.a."));
}

}  // namespace
}  // namespace reports

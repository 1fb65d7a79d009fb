#include "harness/cli/rendering/gnuplot.h"

#include <gmock/gmock.h>

#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/provenance/capture.h"

namespace harness::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

reports::Plot plot_of(const std::string& name, const std::string& label) {
  reports::Plot plot;
  plot.name = name;
  plot.alt = "two points";
  plot.data = "1\t1\t" + label + "\n2\t4\tb\n";
  plot.script = "plot DATA using 1:2:xticlabels(3) with points notitle\n";
  return plot;
}

class GnuplotTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!capture({"gnuplot", "--version"}).ok()) GTEST_SKIP() << "gnuplot is not installed";
  }
};

TEST_F(GnuplotTest, DrawsEveryPlotAndCleansIt) {
  const auto drawn = draw({plot_of("one", "a"), plot_of("two", "c")}, "gnuplot");
  ASSERT_EQ(drawn.size(), 2U);
  EXPECT_THAT(drawn.at("plots/two.svg"), HasSubstr("<svg xmlns="));
  EXPECT_THAT(drawn.at("plots/two.svg"), HasSubstr("aria-label=\"two points\""));
  EXPECT_THAT(drawn.at("plots/two.svg"), Not(HasSubstr("GNUPLOT")));
}

TEST_F(GnuplotTest, LabelsAreTextAndNothingElse) {
  const std::string label = "%s%n {/Symbol a}_b^c <script> `touch x` @f #1 é";
  const auto drawn = draw({plot_of("one", label)}, "gnuplot");
  ASSERT_EQ(drawn.size(), 1U);
  EXPECT_THAT(drawn.at("plots/one.svg"),
              HasSubstr("%s%n {/Symbol a}_b^c &lt;script&gt; `touch x` @f #1 é"));
}

TEST_F(GnuplotTest, OneBadPlotDoesNotCostTheOthers) {
  reports::Plot bad = plot_of("bad", "a");
  bad.script = "plot nothing at all\n";
  const auto drawn = draw({bad, plot_of("good", "a")}, "gnuplot");
  ASSERT_EQ(drawn.size(), 1U);
  EXPECT_TRUE(drawn.contains("plots/good.svg"));
}

TEST(Gnuplot, WithoutTheProgramNothingIsDrawn) {
  EXPECT_TRUE(draw({plot_of("one", "a")}, "no-such-gnuplot").empty());
}

}  // namespace
}  // namespace harness::cli

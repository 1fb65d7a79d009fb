#include "harness/runbook/checks/names.h"

#include <gtest/gtest.h>

namespace harness {
namespace {

TEST(MetricName, TakesWhatTheSpecificationAllows) {
  EXPECT_EQ(metric_name_problem("ranges_ab.v2_vs_v1.speedup_ratio", "ratio", true), "");
  EXPECT_EQ(metric_name_problem("a.sel.s8192.forward_ms", "ms", true), "");
  EXPECT_EQ(metric_name_problem("speed.rate_tok_s", "tok_s", false), "");
  EXPECT_EQ(metric_name_problem("copy.rate_gb_s", "gb_s", false), "");
}

TEST(MetricName, SuffixMustBeTheUnit) {
  EXPECT_EQ(metric_name_problem("a.b.time_us", "ms", true),
            "must end in _ms to agree with its unit");
  EXPECT_NE(metric_name_problem("a.b.rate_tok_s", "s", true), "") << "tok_s is not s";
  EXPECT_NE(metric_name_problem("a.b._ms", "ms", true), "");
  EXPECT_NE(metric_name_problem("a.b.time_hours", "hours", true), "");
}

TEST(MetricName, FormIsChecked) {
  for (const char* bad : {"", "a", "a.b_ms", "A.b.c_ms", "a.b c.d_ms", "a..d_ms", "a.b.c.d.e_ms",
                          "a.b.c_ms.", "1.b.c_ms"})
    EXPECT_NE(metric_name_problem(bad, "ms", true), "") << bad;
}

TEST(Names, PlainNamesAndCriterionIds) {
  EXPECT_TRUE(is_plain_name("ranges_ab2"));
  for (const char* bad : {"", "Ranges", "2a", "a-b", "a b", "a\n", "../a", "a|b"})
    EXPECT_FALSE(is_plain_name(bad)) << bad;
  EXPECT_FALSE(is_plain_name(std::string(65, 'a')));
  EXPECT_TRUE(is_criterion_id("C-env.build_id"));
  for (const char* bad : {"", "C-", "c-a", "X-a", "C-A", "C-a b", "C-a`"})
    EXPECT_FALSE(is_criterion_id(bad)) << bad;
}

TEST(Names, CountsAreExactAndTimesAreMeasured) {
  for (const char* exact : {"value", "min", "max", "all", "checks_run", "checks_failed"})
    EXPECT_TRUE(is_exact_estimator(exact)) << exact;
  for (const char* measured :
       {"median", "rate", "eta", "paired_ratio", "paired_overhead", "nonsense"})
    EXPECT_FALSE(is_exact_estimator(measured)) << measured;
}

}  // namespace
}  // namespace harness

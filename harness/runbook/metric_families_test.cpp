#include "harness/runbook/metric_families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace harness {
namespace {

TEST(MetricFamilies, OneAWord) {
  KindSpec kind;
  kind.lists = {{"mib", {"1", "25"}}};
  MetricSpec family, single;
  family.name = "cap{mib}.step_ms";
  family.source = "step.cap{mib}";
  family.arms = {"alone", "cap{mib}"};
  single.name = "alone.step_ms";
  kind.metrics = {family, single};
  KindTable table;
  table.rows = {{"cap{mib}", "=cap{mib}.step_ms"}, {"alone", "=alone.step_ms"}};
  kind.tables = {table};
  kind.settings = {{"alone", "one process"}, {"cap{mib}", "NSA_DDP_BUCKET_MB={mib}"}};
  const KindSpec whole = expand(kind);
  EXPECT_TRUE(whole.lists.empty());
  ASSERT_EQ(whole.metrics.size(), 3u);
  EXPECT_EQ(whole.metrics[1].name, "cap25.step_ms");
  EXPECT_EQ(whole.metrics[1].source, "step.cap25");
  EXPECT_THAT(whole.metrics[1].arms, testing::ElementsAre("alone", "cap25"));
  EXPECT_THAT(whole.tables[0].rows[0], testing::ElementsAre("cap1", "=cap1.step_ms"));
  EXPECT_EQ(whole.tables[0].rows.size(), 3u);
  EXPECT_THAT(whole.settings, testing::ElementsAre(testing::Pair("alone", "one process"),
                                                   testing::Pair("cap1", "NSA_DDP_BUCKET_MB=1"),
                                                   testing::Pair("cap25", "NSA_DDP_BUCKET_MB=25")));
}

TEST(MetricFamilies, ATextNamesOneListOrNone) {
  EXPECT_EQ(list_named_in("cap{mib}.step_ms"), "mib");
  EXPECT_EQ(list_named_in("alone.step_ms"), "");
  EXPECT_EQ(list_named_in("cap{mib.step_ms"), "");
}

}  // namespace
}  // namespace harness

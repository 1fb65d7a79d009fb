#include "harness/training_comparison/dense_counterpart.h"

#include <gtest/gtest.h>

namespace harness {
namespace {

TEST(MemoryGrowth, ByHand) {
  // Linear behind 100 MiB that every run has once.
  const StepMemory few{256, 512, 151.2}, rows{256, 1024, 202.4}, row{1024, 1024, 202.4};
  EXPECT_DOUBLE_EQ(*memory_growth({few, rows, row}), 1);
  // A buffer of length x length.
  EXPECT_DOUBLE_EQ(*memory_growth({few, rows, {1024, 1024, 404.8}}), 2);
  EXPECT_DOUBLE_EQ(*memory_growth({{1024, 1024, 100}, {256, 1024, 200}}), 0.5);
}

TEST(MemoryGrowth, NeedsLongerRowsInAStepOfNoFewerTokens) {
  EXPECT_FALSE(memory_growth({}));
  EXPECT_FALSE(memory_growth({{256, 512, 10}, {256, 1024, 20}}));
  EXPECT_FALSE(memory_growth({{256, 1024, 10}, {1024, 512, 20}}));
}

}  // namespace
}  // namespace harness

#include "harness/cli/process_count.h"

#include <gtest/gtest.h>

namespace harness::cli {
namespace {

PlannedPhase phase_of(size_t first, const std::vector<size_t>& further) {
  PlannedPhase phase;
  phase.groups.resize(first);
  for (const size_t count : further) {
    phase.further.emplace_back();
    phase.further.back().groups.resize(count);
  }
  return phase;
}

TEST(ProcessCount, ExpectsOfTheRestWhatTheEndedOnesTook) {
  ProcessCount count(phase_of(4, {}));
  EXPECT_EQ(count.number(), 0U);
  EXPECT_EQ(count.of(), 4U);
  count.start("g01", 0);
  EXPECT_EQ(count.left(7), 0) << "none has ended";
  count.start("g02", 10);
  EXPECT_EQ(count.number(), 2U);
  EXPECT_DOUBLE_EQ(count.left(10), 30);
  EXPECT_DOUBLE_EQ(count.left(15), 25);
  count.start("g03", 40);
  EXPECT_DOUBLE_EQ(count.left(40), 40);
  EXPECT_DOUBLE_EQ(count.left(1000), 0) << "it takes longer than the others did";
}

TEST(ProcessCount, AFurtherLookCountsOnceItHasBegun) {
  ProcessCount count(phase_of(2, {2, 3}));
  count.start("g01", 0);
  count.start("g02", 10);
  EXPECT_EQ(count.of(), 2U);
  count.start("g03", 20);
  EXPECT_EQ(count.of(), 4U);
  EXPECT_DOUBLE_EQ(count.left(20), 20);
  count.start("g05", 40);
  EXPECT_EQ(count.of(), 7U);
}

TEST(ProcessCount, OfAResumedPhaseOnlyTheStartsOfThisProcessCountAsTime) {
  ProcessCount count(phase_of(10, {}));
  count.start("g07", 0);
  EXPECT_EQ(count.number(), 7U);
  count.start("g08", 6);
  EXPECT_DOUBLE_EQ(count.left(6), 18);
}

TEST(ProcessCount, AnotherAttemptIsTheSameProcess) {
  ProcessCount count(phase_of(2, {}));
  count.start("g01", 0);
  count.start("g01", 5);
  EXPECT_EQ(count.number(), 1U);
  EXPECT_DOUBLE_EQ(count.left(5), 10);
  count.start("other", 10);
  EXPECT_EQ(count.number(), 2U) << "ids of another form count on";
}

}  // namespace
}  // namespace harness::cli

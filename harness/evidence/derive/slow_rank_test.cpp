#include "harness/evidence/derive/slow_rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/evidence/derive/findings.h"

namespace harness {
namespace {

using testing::HasSubstr;

/// A rank whose forward pass takes `ms`, a little more in every other step.
RawGroup rank(const std::string& id, double ms, int64_t steps = 40) {
  RawGroup group;
  group.id = id;
  for (int64_t step = 1; step <= steps; ++step) {
    base::protocol::Beat beat;
    beat.step = step;
    beat.at = "step";
    beat.extra = {{"load_ms", 0.5}, {"forward_ms", ms + 0.1 * static_cast<double>(step % 2)}};
    group.steps.push_back(beat);
  }
  return group;
}

TEST(SlowRank, TheOneThatTheOthersWaitForIsNamed) {
  const auto found = slow_rank({rank("g01.r0", 10), rank("g01.r1", 20), rank("g01.r2", 11)});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, "g01.r1");
  EXPECT_EQ(found->steps, 40);
  EXPECT_EQ(found->slower, 40);
  EXPECT_NEAR(found->own_ms, 20.55, 1e-9);
  EXPECT_NEAR(found->next_ms, 11.55, 1e-9);
  EXPECT_THAT(found->text(), HasSubstr("a quarter longer in 40 of 40 steps"));
}

TEST(SlowRank, IsNoneAmongEquals) {
  EXPECT_FALSE(slow_rank({}));
  EXPECT_FALSE(slow_rank({rank("g01.r0", 10), rank("g01.r1", 12)}));
  EXPECT_FALSE(slow_rank({rank("g01", 10), rank("g02", 20)})) << "processes, not ranks";
  EXPECT_FALSE(slow_rank({rank("g01.r0", 10), rank("g02.r0", 20)})) << "alone in their groups";
  EXPECT_FALSE(slow_rank({rank("g01.r0", 10, 19), rank("g01.r1", 20)})) << "too few steps";
  RawGroup silent = rank("g01.r1", 20);
  for (base::protocol::Beat& beat : silent.steps) beat.extra.erase("forward_ms");
  EXPECT_FALSE(slow_rank({rank("g01.r0", 10), silent}));
  RawGroup at_times = rank("g01.r1", 10);
  for (size_t i = 0; i < 30; ++i) at_times.steps[i].extra["forward_ms"] = 40;
  EXPECT_FALSE(slow_rank({rank("g01.r0", 10), at_times})) << "three of four steps";
}

TEST(SlowRank, IsAFindingOfItsPhase) {
  PhaseResult result;
  result.id = "P-ddp";
  result.name = "ddp";
  RawPhase raw;
  raw.groups = {rank("g01.r0", 10), rank("g01.r1", 20)};
  const auto findings = phase_findings(result, raw, {});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].id, "F-ddp.SLOW_RANK");
  EXPECT_THAT(findings[0].symptom, HasSubstr("g01.r1 takes 20.55 ms"));
  EXPECT_NE(findings[0].cause, "not known to this program");
}

}  // namespace
}  // namespace harness

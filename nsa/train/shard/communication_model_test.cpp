// Predicted communication of sharded parameters, against figures that were worked out by hand.
#include "nsa/train/shard/communication_model.h"

#include <gtest/gtest.h>

namespace nsa::train {
namespace {

/// 1 GB of parameters and of gradients in 10 units; 100 ms of computation.
constexpr ShardedWork kWork{
    .parameter_bytes = 1e9, .gradient_bytes = 1e9, .units = 10, .compute_ms = 100};

TEST(CommunicationModel, OneRankSendsNothing) {
  const CommunicationPlan one = plan_communication(kWork, {100, 100, 5}, 1);
  EXPECT_EQ(one.transfer_ms, 0);
  EXPECT_EQ(one.latency_ms, 0);
  EXPECT_EQ(one.step_ms, 100);
  EXPECT_EQ(one.linear_pct, 100);
  EXPECT_EQ(one.limit, "compute");
}

TEST(CommunicationModel, TwoRanksHideAllButTheEnds) {
  // Each sends half: 5 ms a gather, 10 ms the average; 30 collectives of one message of 0.1 ms.
  const CommunicationPlan two = plan_communication(kWork, {100, 50, 100}, 2);
  EXPECT_DOUBLE_EQ(two.transfer_ms, 20);
  EXPECT_DOUBLE_EQ(two.latency_ms, 3);
  EXPECT_NEAR(two.exposed_ms, 1.7, 1e-9);  // a tenth of a gather and of the average, two messages
  EXPECT_DOUBLE_EQ(two.linear_pct, 100 * 100 / 101.7);
  EXPECT_EQ(two.limit, "compute");
}

TEST(CommunicationModel, WithoutOverlapAllOfItAddsUp) {
  ShardedWork work = kWork;
  work.overlaps = false;
  EXPECT_DOUBLE_EQ(plan_communication(work, {100, 50, 100}, 2).step_ms, 123);
}

TEST(CommunicationModel, SlowLinksAreLimitedByBandwidth) {
  const CommunicationPlan plan = plan_communication(kWork, {10, 10, 0}, 4);
  EXPECT_DOUBLE_EQ(plan.transfer_ms, 225);  // 75 ms each
  EXPECT_DOUBLE_EQ(plan.step_ms, 225);      // all of it, the ends included
  EXPECT_DOUBLE_EQ(plan.linear_pct, 100 * 100 / 225.0);
  EXPECT_EQ(plan.limit, "bandwidth");
}

TEST(CommunicationModel, TheNumberOfMessagesLimitsManyRanks) {
  const auto plans = plan_communication_up_to(kWork, {100, 100, 5}, {100, 100, 5}, 8, 1024);
  ASSERT_EQ(plans.size(), 11u);
  EXPECT_EQ(plans.back().ranks, 1024);
  EXPECT_DOUBLE_EQ(plans.back().latency_ms, 30 * 1023 * 0.005);
  const CommunicationPlan* first = first_limited(plans);
  ASSERT_NE(first, nullptr);
  // 30 ms of bytes and 0.15 ms for every rank but one: more than 100 ms from 467 ranks on.
  EXPECT_EQ(first->ranks, 512);
  EXPECT_EQ(first->limit, "latency");
}

TEST(CommunicationModel, MoreRanksThanANodeHasUseTheNetwork) {
  const auto plans = plan_communication_up_to(kWork, {100, 100, 0}, {10, 10, 0}, 8, 16);
  EXPECT_DOUBLE_EQ(plans[3].transfer_ms, 30 * 7 / 8.0);
  EXPECT_DOUBLE_EQ(plans[4].transfer_ms, 300 * 15 / 16.0);
  EXPECT_EQ(first_limited(plans), &plans[4]);
  EXPECT_EQ(first_limited(plan_communication_up_to(kWork, {100, 100, 0}, {100, 100, 0}, 8, 1024)),
            nullptr);
}

}  // namespace
}  // namespace nsa::train

#include "nsa/train/context/context_cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "nsa/program/input_error.h"
#include "nsa/train/context/context_shard.h"

namespace nsa::train {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

/// Hkv 2, dims 64/64, d 16, l 32, window 512.
NsaConfig config() { return {}; }

TEST(ContextCost, BytesAreThoseOfTheKeysAndValuesOfOthers) {
  const ContextBytes b = context_bytes(config(), {.sequence = 65536, .ranks = 4});
  const double row = 2 * (64 + 64) * 2;
  EXPECT_DOUBLE_EQ(b.selected, 3 * 16384 * row);
  EXPECT_DOUBLE_EQ(b.compressed, 3 * 1024 * row);
  EXPECT_DOUBLE_EQ(b.boundaries, 2 * (16 + 511) * row);
  EXPECT_DOUBLE_EQ(b.gradients, b.selected + b.compressed + b.boundaries);
  EXPECT_EQ(context_bytes(config(), {.sequence = 65536, .ranks = 1}).total(), 0);
}

TEST(ContextCost, FetchingMustSaveAFifth) {
  EXPECT_TRUE(fetching_is_cheaper(79, 100));
  EXPECT_FALSE(fetching_is_cheaper(80, 100));
  EXPECT_FALSE(fetching_is_cheaper(0, 0)) << "one rank has nothing to fetch";
}

/// Why ranks have an early and a late piece: with one part each the last has half as much again.
TEST(ContextCost, TwoPiecesARankBalanceTheWork) {
  for (const int64_t ranks : {2, 4, 8, 64}) {
    EXPECT_GT(work_balance(config(), 65536, ranks, ContextLayout::kZigzag), 0.98) << ranks;
    EXPECT_LT(work_balance(config(), 65536, ranks, ContextLayout::kContiguous), 0.8) << ranks;
  }
  EXPECT_DOUBLE_EQ(work_balance(config(), 65536, 1, ContextLayout::kContiguous), 1);
}

TEST(ContextCost, TheLimitIsWhatTakesLonger) {
  const ContextCall one{.sequence = 65536}, eight{.sequence = 65536, .ranks = 8};
  const ContextRates fast{.attention_tflops = 100, .link_gb_per_s = 1e9};
  const double balance = work_balance(config(), 65536, 8, ContextLayout::kZigzag);
  EXPECT_NEAR(context_times(config(), eight, fast).attention_ms * 8 * balance,
              context_times(config(), one, fast).attention_ms, 1e-9);
  EXPECT_EQ(context_times(config(), eight, fast).limit(), "attention");
  const ContextRates slow{.attention_tflops = 100, .link_gb_per_s = 1};
  EXPECT_EQ(context_times(config(), eight, slow).limit(), "communication");
}

/// The table of docs/several_gpus.md: how many ranks (powers of two) make communication the longer
/// part, 0: none of up to 64.
TEST(ContextCost, CommunicationIsLongerFromTheseRanksOn) {
  const auto ranks_from = [](int64_t tokens, double link_gb_per_s) {
    for (int64_t ranks = 2; ranks <= 64; ranks *= 2)
      if (context_times(config(), {.sequence = tokens, .ranks = ranks},
                        {.attention_tflops = 300, .link_gb_per_s = link_gb_per_s})
              .limit() == "communication")
        return ranks;
    return int64_t{0};
  };
  std::vector<int64_t> nvlink, network;
  for (int64_t tokens = 65536; tokens <= (1 << 20); tokens *= 2) {
    nvlink.push_back(ranks_from(tokens, 200));
    network.push_back(ranks_from(tokens, 50));
    for (const int64_t ranks : {2, 64})
      EXPECT_GT(work_balance(config(), tokens, ranks, ContextLayout::kZigzag), 0.99) << tokens;
  }
  EXPECT_THAT(nvlink, testing::ElementsAre(32, 64, 0, 0, 0));
  EXPECT_THAT(network, testing::ElementsAre(8, 16, 32, 32, 64));
  EXPECT_NEAR(work_balance(config(), 65536, 2, ContextLayout::kContiguous), 0.78, 0.005);
  EXPECT_NEAR(work_balance(config(), 1 << 20, 64, ContextLayout::kContiguous), 0.52, 0.005);
}

TEST(ContextShard, PiecesOfAllRanksAreTheSequence) {
  std::vector<int64_t> begins;
  for (int64_t rank = 0; rank < 3; ++rank)
    for (int64_t slot = 0; slot < 2; ++slot) {
      const ContextShard shard{rank, 3, 600};
      EXPECT_EQ(shard.end(slot), shard.begin(slot) + 100);
      begins.push_back(shard.begin(slot));
    }
  EXPECT_THAT(begins, testing::ElementsAre(0, 500, 100, 400, 200, 300));
}

TEST(ContextShard, WhatCannotBeDividedIsNamed) {
  const auto requires_parts = [](int64_t tokens, int64_t world) {
    return [=] { require_context_shards(config(), tokens, world); };
  };
  EXPECT_NO_THROW(require_context_shards(config(), 4096, 4));
  EXPECT_THAT(requires_parts(4096, 3), ThrowsMessage<InputError>(HasSubstr("equal length, got 3")));
  EXPECT_THAT(requires_parts(4096, 0), ThrowsMessage<InputError>(HasSubstr("got 0")));
  EXPECT_THAT(requires_parts(4128, 1),
              ThrowsMessage<InputError>(HasSubstr("multiples of 64 tokens), not of 2064")));
  EXPECT_THAT(requires_parts(4096, 16),
              ThrowsMessage<InputError>(HasSubstr("at least 511 tokens, the larger of block_size "
                                                  "and window - 1, not of 128; use fewer ranks")));
}

}  // namespace
}  // namespace nsa::train

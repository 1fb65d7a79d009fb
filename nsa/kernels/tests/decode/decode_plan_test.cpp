#include "nsa/kernels/decode/decode_plan.h"

#include <gtest/gtest.h>

namespace nsa::kernels {
namespace {

constexpr DecodeCard kH200{132, 232448, 233472, true};

DecodeAttention paper(int batch, int tokens) {
  DecodeAttention p;
  p.batch = batch, p.num_heads = 64, p.num_kv_heads = 4, p.qk_head_dim = 192, p.v_head_dim = 128;
  p.block_size = 32, p.block_stride = 16, p.sel_block_size = 64, p.top_n = 16;
  p.window_size = 512, p.max_tokens = tokens;
  return p;
}

TEST(DecodePlan, FewRowsAreSpreadOverTheCardAndManyAreNot) {
  EXPECT_GE(plan_decode(paper(1, 65536), kH200).ranks, 8);
  EXPECT_LE(plan_decode(paper(256, 8192), kH200).ranks, 2);
}

TEST(DecodePlan, CutsAreTheFastestMeasured) {
  // Microseconds on an H200: 328 as two blocks of four warps an SM, 361 as one of eight, 384 of
  // six.
  const portable::DecodePlan many = plan_decode(paper(256, 9216), kH200);
  EXPECT_EQ(many.ranks, 1);
  EXPECT_EQ(many.warps, 4);
  EXPECT_TRUE(many.unit_sums);
  // 122, all blocks at a time; 125 with 2 x 8, two after the other; 131 with 2 x 6, 137 with 1 x 4.
  const portable::DecodePlan some = plan_decode(paper(32, 69632), kH200);
  EXPECT_EQ(some.ranks, 1);
  EXPECT_EQ(some.warps, 6);
  EXPECT_TRUE(some.unit_sums);
  // More tokens do not fit so.
  EXPECT_EQ(plan_decode(paper(32, 73728), kH200).ranks, 2);
  EXPECT_EQ(plan_decode(paper(32, 73728), kH200).warps, 8);
  // 39; 52 with 8 x 8, 67 with 16 x 8.
  EXPECT_EQ(plan_decode(paper(4, 66560), kH200).ranks, 4);
  // 17.2; 17.8 with 16 x 6, 20.2 with 8 x 8. Logits fit, and cost less than unit sums.
  const portable::DecodePlan one = plan_decode(paper(1, 66560), kH200);
  EXPECT_EQ(one.ranks, 16);
  EXPECT_EQ(one.warps, 8);
  EXPECT_FALSE(one.unit_sums);
}

TEST(DecodePlan, EverythingFitsAndPartsDoNotOverlap) {
  for (const int batch : {1, 2, 3, 8, 32, 256})
    for (const int tokens : {1, 63, 64, 65, 1000, 8192, 65536, 131072}) {
      const portable::DecodePlan plan = plan_decode(paper(batch, tokens), kH200);
      SCOPED_TRACE("B " + std::to_string(batch) + " tokens " + std::to_string(tokens));
      ASSERT_GT(plan.ranks, 0);
      EXPECT_LE(plan.bytes, kH200.shared_bytes);
      EXPECT_EQ(1 << plan.log_ranks, plan.ranks);
      const int units = (tokens + 63) / 64, most = (units + plan.ranks - 1) / plan.ranks;
      EXPECT_GE(plan.score_stride, plan.unit_sums ? most : 4 * most + 1);
      EXPECT_GE(plan.tile_stride, plan.unit_sums ? (most + 3) / 4 + 1 : 0);
      EXPECT_GE(plan.area, plan.warps * portable::decode_ring_bytes(192, 128));
      EXPECT_GE(plan.carries - plan.area, 16 * plan.score_stride * 4);
      EXPECT_GE(plan.references - plan.carries, 16 * plan.tile_stride * 4);
      EXPECT_GE(plan.stats - plan.references, 16 * plan.tile_stride * 4);
      EXPECT_GE(plan.stats - plan.area, 3 * 16 * 128 * 4);
      EXPECT_GE(plan.warp_stats - plan.stats, 2 * plan.ranks * 16 * 8);
      EXPECT_GE(plan.weights - plan.warp_stats, plan.warps * 16 * 8);
      EXPECT_GE(plan.candidates - plan.weights, plan.warps * 16 * 4);
      EXPECT_GE(plan.keys - plan.candidates, plan.ranks * 16 * 8);
      EXPECT_GE(plan.bytes - plan.keys, plan.warps * 2 * 16 * 8);
    }
}

TEST(DecodePlan, OneRankWhereThereAreNoClusters) {
  const DecodeCard without{108, 166912, 167936, false};
  EXPECT_EQ(plan_decode(paper(1, 2048), without).ranks, 1);
  EXPECT_EQ(plan_decode(paper(1, 1 << 20), without).ranks, 0);
}

TEST(DecodePlan, AnAskedCutIsTakenOrThereIsNone) {
  DecodeAttention p = paper(1, 4096);
  p.ranks = 4, p.warps = 6;
  EXPECT_EQ(plan_decode(p, kH200).ranks, 4);
  EXPECT_EQ(plan_decode(p, kH200).warps, 6);
  p.ranks = 3;
  EXPECT_EQ(plan_decode(p, kH200).ranks, 0);
  p.ranks = 4, p.warps = 9;
  EXPECT_EQ(plan_decode(p, kH200).ranks, 0);
}

TEST(DecodePlan, DivisorsAreExact) {
  for (const int by : {1, 2, 3, 5, 7, 16, 33, 48, 64, 1000, 65535, 65536, 1 << 30}) {
    const portable::Divisor divisor(by);
    for (const int64_t x : {int64_t(0), int64_t(1), int64_t(by) - 1, int64_t(by), int64_t(by) + 1,
                            int64_t(2) * by - 1, int64_t(123456789), (int64_t(1) << 31) - 1}) {
      if (x >= int64_t(1) << 31) continue;
      EXPECT_EQ((uint64_t(x) * divisor.multiplier) >> divisor.shift, uint64_t(x) / by) << x;
    }
  }
}

}  // namespace
}  // namespace nsa::kernels

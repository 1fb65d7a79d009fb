#include "nsa/reference/stages/compress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "nsa/reference/test_inputs.h"

namespace nsa::reference {
namespace {

/// l = 2, d = 1: three tokens make the blocks {0,1} and {1,2}.
Config two_blocks(Phi phi, Rope rope) {
  Config c;
  c.num_heads = c.num_kv_heads = 1;
  c.qk_head_dim = c.v_head_dim = 1;
  c.block_size = 2, c.block_stride = 1, c.sel_block_size = 2;
  c.phi = phi, c.rope = rope;
  return c;
}

const Tensor<double> kTokens({1, 3, 1, 1}, {1, 2, 4});

TEST(Compress, NumberOfBlocks) {
  Config c;  // l = 32, d = 16, l' = 64
  const std::pair<int64_t, int64_t> blocks[] = {{0, 0},  {1, 0},  {31, 0}, {32, 1}, {33, 1},
                                                {47, 1}, {48, 2}, {63, 2}, {64, 3}, {65536, 4095}};
  for (const auto& [tokens, n_c] : blocks) EXPECT_EQ(num_compressed(c, tokens), n_c) << tokens;
  EXPECT_EQ(num_sel_blocks(c, 0), 0);
  EXPECT_EQ(num_sel_blocks(c, 64), 1);
  EXPECT_EQ(num_sel_blocks(c, 65), 2);
}

TEST(Compress, Mean) {
  // (1+2)/2 = 1.5, (2+4)/2 = 3.
  const Config c = two_blocks(Phi::kMean, Rope::kNone);
  EXPECT_EQ(compress_keys(c, kTokens, {}).values(), (std::vector<double>{1.5, 3}));
  EXPECT_EQ(compress_values(c, kTokens, {}).values(), (std::vector<double>{1.5, 3}));
}

TEST(Compress, ConvTapZeroMeetsTheOldestToken) {
  // Taps (10, 1): 10*1 + 1*2 = 12, 10*2 + 1*4 = 24.
  const Config c = two_blocks(Phi::kConv, Rope::kNone);
  PhiWeights w;
  w.conv = Tensor<double>({1, 2}, {10, 1});
  EXPECT_EQ(compress_keys(c, kTokens, w).values(), (std::vector<double>{12, 24}));
}

TEST(Compress, ConvHasOneFilterAChannelSharedByTheHeads) {
  // Channels (1,2) then (3,4) in head 0, ten times that in head 1; filters (1,0) and (0,1).
  Config c = two_blocks(Phi::kConv, Rope::kNone);
  c.num_heads = c.num_kv_heads = 2, c.qk_head_dim = 2;
  PhiWeights w;
  w.conv = Tensor<double>({2, 2}, {1, 0, 0, 1});
  const Tensor<double> x({1, 2, 2, 2}, {1, 2, 10, 20, 3, 4, 30, 40});
  EXPECT_EQ(compress_keys(c, x, w).values(), (std::vector<double>{1, 4, 10, 40}));
}

TEST(Compress, Mlp) {
  // pe (0.5, -0.5): x + pe = (1.5, 1.5) and (2.5, 3.5); w1 (1, 1), b1 -3: hidden 0 and 3;
  // SiLU: 0 and 3 / (1 + e^-3); w2 2, b2 7.
  const Config c = two_blocks(Phi::kMlp, Rope::kNone);
  PhiWeights w;
  w.pe = Tensor<double>({2, 1}, {0.5, -0.5});
  w.w1 = Tensor<double>({1, 2}, {1, 1}), w.b1 = Tensor<double>({1}, {-3});
  w.w2 = Tensor<double>({1, 1}, {2}), w.b2 = Tensor<double>({1}, {7});
  const Tensor<double> y = compress_keys(c, kTokens, w);
  EXPECT_DOUBLE_EQ(y(0, 0, 0, 0), 7.0);
  EXPECT_DOUBLE_EQ(y(0, 1, 0, 0), 7.0 + 2 * 3 / (1 + std::exp(-3.0)));
}

TEST(Compress, MlpFlattensTokenMajor) {
  // Flat input: token 0 channels 0, 1, then token 1. w1 picks flat[1] (token 0, channel 1 = 20) and
  // flat[2] (token 1, channel 0 = 30); SiLU of 20 and 30 is 20 and 30 to 1e-7; w2 = identity.
  Config c = two_blocks(Phi::kMlp, Rope::kNone);
  c.qk_head_dim = 2;
  PhiWeights w;
  w.pe = Tensor<double>({2, 2}), w.b1 = w.b2 = Tensor<double>({2});
  w.w1 = Tensor<double>({2, 4}, {0, 1, 0, 0, 0, 0, 1, 0});
  w.w2 = Tensor<double>({2, 2}, {1, 0, 0, 1});
  const Tensor<double> y = compress_keys(c, Tensor<double>({1, 2, 1, 2}, {10, 20, 30, 40}), w);
  EXPECT_NEAR(y(0, 0, 0, 0), 20, 1e-6);
  EXPECT_NEAR(y(0, 0, 0, 1), 30, 1e-6);
}

TEST(Compress, RopeOptions) {
  // dk = 2, every key (1, 0), blocks {0,1} and {1,2}. before_pool: the mean of the rotated tokens;
  // block_start: the mean (1, 0) rotated to 0 and to 1; none: (1, 0).
  const Tensor<double> ones({1, 3, 1, 2}, {1, 0, 1, 0, 1, 0});
  Config c = two_blocks(Phi::kMean, Rope::kBeforePool);
  c.qk_head_dim = 2;
  const Tensor<double> before = compress_keys(c, ones, {});
  EXPECT_DOUBLE_EQ(before(0, 0, 0, 0), (1 + std::cos(1.0)) / 2);
  EXPECT_DOUBLE_EQ(before(0, 0, 0, 1), (0 + std::sin(1.0)) / 2);
  EXPECT_DOUBLE_EQ(before(0, 1, 0, 0), (std::cos(1.0) + std::cos(2.0)) / 2);
  c.rope = Rope::kBlockStart;
  const Tensor<double> start = compress_keys(c, ones, {});
  EXPECT_EQ(start(0, 0, 0, 0), 1.0);
  EXPECT_DOUBLE_EQ(start(0, 1, 0, 0), std::cos(1.0));
  EXPECT_DOUBLE_EQ(start(0, 1, 0, 1), std::sin(1.0));
  c.rope = Rope::kNone;
  EXPECT_EQ(compress_keys(c, ones, {}).values(), (std::vector<double>{1, 0, 1, 0}));
  c.rope = Rope::kBeforePool;
  c.v_head_dim = 2;
  EXPECT_EQ(compress_values(c, ones, {}).values(), (std::vector<double>{1, 0, 1, 0}));
}

TEST(Compress, BlockStartMultipliesTheStride) {
  // d = 2: block 1 starts at token 2.
  Config c = two_blocks(Phi::kMean, Rope::kBlockStart);
  c.qk_head_dim = 2, c.block_stride = 2;
  const Tensor<double> y =
      compress_keys(c, Tensor<double>({1, 4, 1, 2}, {1, 0, 1, 0, 1, 0, 1, 0}), {});
  EXPECT_DOUBLE_EQ(y(0, 1, 0, 0), std::cos(2.0));
}

TEST(Compress, Errors) {
  const Config conv = two_blocks(Phi::kConv, Rope::kNone);
  EXPECT_EQ(error_of([&] { compress_keys(conv, kTokens, {}); }),
            "nsa::reference::compress: conv_k must be [1, 2], got nothing");
  PhiWeights w;
  w.conv = Tensor<double>({2, 1});
  EXPECT_EQ(error_of([&] { compress_values(conv, kTokens, w); }),
            "nsa::reference::compress: conv_v must be [1, 2], got [2, 1]");
  EXPECT_EQ(error_of([&] { compress_keys(two_blocks(Phi::kMean, Rope::kNone), kTokens, w); }),
            "nsa::reference::compress: conv_k must be absent for this phi, got [2, 1]");
  EXPECT_THAT(error_of([&] { compress_keys(two_blocks(Phi::kMlp, Rope::kNone), kTokens, {}); }),
              ::testing::HasSubstr("phi_k.pe must be [2, 1], got nothing"));
}

}  // namespace
}  // namespace nsa::reference

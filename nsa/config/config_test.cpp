#include "nsa/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <stdexcept>

namespace nsa {
namespace {

using ::testing::StrEq;

std::string error_of(const std::function<void(NsaConfig&)>& change) {
  NsaConfig config;
  change(config);
  try {
    config.validate();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(NsaConfig, PresetsAreValid) {
  m7c_125m().validate();
  tiny_cpu().validate();
  EXPECT_EQ(m7c_125m().group_size(), 6);
}

TEST(NsaConfig, EachRuleIsRejectedByNameAndValue) {
  const std::string at_least_1 = " must be at least 1, got 0";
  EXPECT_THAT(error_of([](auto& c) { c.num_heads = 0; }),
              StrEq("NsaConfig: num_heads" + at_least_1));
  EXPECT_THAT(error_of([](auto& c) { c.num_kv_heads = 0; }),
              StrEq("NsaConfig: num_kv_heads" + at_least_1));
  EXPECT_THAT(error_of([](auto& c) { c.qk_head_dim = 0; }),
              StrEq("NsaConfig: qk_head_dim" + at_least_1));
  EXPECT_THAT(error_of([](auto& c) { c.v_head_dim = 0; }),
              StrEq("NsaConfig: v_head_dim" + at_least_1));
  EXPECT_THAT(error_of([](auto& c) { c.block_size = 0; }),
              StrEq("NsaConfig: block_size" + at_least_1));
  EXPECT_THAT(error_of([](auto& c) { c.block_stride = 0; }),
              StrEq("NsaConfig: block_stride" + at_least_1));
  EXPECT_THAT(error_of([](auto& c) { c.sel_block_size = 0; }),
              StrEq("NsaConfig: sel_block_size" + at_least_1));
  EXPECT_THAT(error_of([](auto& c) { c.top_n = 0; }), StrEq("NsaConfig: top_n" + at_least_1));
  EXPECT_THAT(error_of([](auto& c) { c.num_initial = -1; }),
              StrEq("NsaConfig: num_initial must be at least 0, got -1"));
  EXPECT_THAT(error_of([](auto& c) { c.num_local = 0; }),
              StrEq("NsaConfig: num_local" + at_least_1));
  EXPECT_THAT(error_of([](auto& c) { c.window = -1; }),
              StrEq("NsaConfig: window must be at least 0, got -1"));
  EXPECT_EQ(error_of([](auto& c) { c.window = 0; }), "accepted");
}

TEST(NsaConfig, RelationsAreRejectedByNameAndValue) {
  EXPECT_THAT(error_of([](auto& c) { c.num_kv_heads = 5; }),
              StrEq("NsaConfig: num_kv_heads must be a divisor of num_heads = 12, got 5"));
  EXPECT_THAT(error_of([](auto& c) { c.block_stride = 12; }),
              StrEq("NsaConfig: block_stride must be a divisor of block_size = 32, got 12"));
  EXPECT_THAT(error_of([](auto& c) { c.sel_block_size = 72; }),
              StrEq("NsaConfig: block_stride must be a divisor of sel_block_size = 72, got 16"));
  EXPECT_THAT(error_of([](auto& c) { c.block_size = 80; }),
              StrEq("NsaConfig: block_size must be at most sel_block_size = 64, got 80"));
  EXPECT_THAT(error_of([](auto& c) { c.top_n = 2; }),
              StrEq("NsaConfig: top_n must be at least num_initial + num_local = 1 + 2, got 2"));
  EXPECT_THAT(error_of([](auto& c) { c.qk_head_dim = 63; }),
              StrEq("NsaConfig: qk_head_dim must be even unless rope is none, got 63"));
  EXPECT_THAT(error_of([](auto& c) { c.rope_base = 0; }),
              StrEq("NsaConfig: rope_base must be a positive finite number, got 0"));
  EXPECT_THAT(error_of([](auto& c) { c.rope_base = std::numeric_limits<double>::quiet_NaN(); }),
              StrEq("NsaConfig: rope_base must be a positive finite number, got nan"));
  EXPECT_THAT(error_of([](auto& c) { c.scale_cmp = 0.0; }),
              StrEq("NsaConfig: scale_cmp must be a positive finite number, got 0"));
  EXPECT_THAT(error_of([](auto& c) { c.scale_sel = -0.5; }),
              StrEq("NsaConfig: scale_sel must be a positive finite number, got -0.5"));
  EXPECT_THAT(error_of([](auto& c) { c.scale_win = std::numeric_limits<double>::infinity(); }),
              StrEq("NsaConfig: scale_win must be a positive finite number, got inf"));
  EXPECT_EQ(error_of([](auto& c) { c.qk_head_dim = 63, c.rope = RopeMode::kNone; }), "accepted");
  EXPECT_EQ(error_of([](auto& c) { c.top_n = 1000, c.window = 1 << 20; }), "accepted");
}

TEST(NsaConfig, ScaleIsThatOfTheBranchOrOneOverTheRootOfTheKeyDim) {
  NsaConfig config;  // dk 64
  EXPECT_EQ(config.cmp_scale(), 0.125);
  config.scale_sel = 2.0;
  EXPECT_EQ(config.cmp_scale(), 0.125);
  EXPECT_EQ(config.sel_scale(), 2.0);
  EXPECT_EQ(config.win_scale(), 0.125);
  config.set_scale(0.5);
  EXPECT_EQ(config.cmp_scale(), 0.5);
  EXPECT_EQ(config.sel_scale(), 0.5);
  EXPECT_EQ(config.win_scale(), 0.5);
}

TEST(NsaConfig, CountsBlocks) {
  const NsaConfig config;  // l 32, d 16, l' 64
  EXPECT_EQ(config.num_compressed(31), 0);
  EXPECT_EQ(config.num_compressed(32), 1);
  EXPECT_EQ(config.num_compressed(47), 1);
  EXPECT_EQ(config.num_compressed(48), 2);
  EXPECT_EQ(config.num_sel_blocks(0), 0);
  EXPECT_EQ(config.num_sel_blocks(64), 1);
  EXPECT_EQ(config.num_sel_blocks(65), 2);
}

TEST(NsaConfig, NamesRoundTripAndBadNamesListTheChoices) {
  EXPECT_EQ(parse_phi(to_string(Phi::kMlp)), Phi::kMlp);
  EXPECT_EQ(parse_gate_activation("sigmoid"), GateActivation::kSigmoid);
  EXPECT_EQ(parse_rope_mode("block_start"), RopeMode::kBlockStart);
  EXPECT_EQ(parse_rope_pairs("half_split"), RopePairs::kHalfSplit);
  EXPECT_EQ(to_string(RopePairs::kInterleaved), "interleaved");
  try {
    parse_phi("avg");
    FAIL() << "accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "NsaConfig: phi must be one of mean, conv, mlp, got 'avg'");
  }
}

}  // namespace
}  // namespace nsa

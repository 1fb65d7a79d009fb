#include "nsa/reference/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "nsa/reference/test_inputs.h"

namespace nsa::reference {
namespace {

std::string error_with(const std::function<void(Config&)>& change) {
  Config c;
  change(c);
  return error_of([&] { validate(c); });
}

TEST(Config, DefaultsAndExtremesAreValid) {
  EXPECT_EQ(error_with([](Config&) {}), "");
  EXPECT_EQ(error_with([](Config& c) { c.top_n = 1000, c.window = 1 << 20; }), "");
  EXPECT_EQ(error_with([](Config& c) { c.n_initial = 0, c.n_local = 16; }), "");
  EXPECT_EQ(error_with([](Config& c) { c.window = 0; }), "");
  EXPECT_EQ(error_with([](Config& c) { c.num_heads = 7, c.num_kv_heads = 7; }), "");
  EXPECT_EQ(error_with([](Config& c) { c.block_size = c.sel_block_size = 48; }), "");
  EXPECT_EQ(error_with([](Config& c) { c.qk_head_dim = 5, c.rope = Rope::kNone; }), "");
}

TEST(Config, EverySizeIsAtLeastOne) {
  const std::pair<const char*, int64_t Config::*> sizes[] = {
      {"num_heads", &Config::num_heads},
      {"num_kv_heads", &Config::num_kv_heads},
      {"qk_head_dim", &Config::qk_head_dim},
      {"v_head_dim", &Config::v_head_dim},
      {"block_size", &Config::block_size},
      {"block_stride", &Config::block_stride},
      {"top_n", &Config::top_n},
      {"sel_block_size", &Config::sel_block_size}};
  for (const auto& [name, member] : sizes)
    for (const int64_t bad : {int64_t{0}, int64_t{-3}}) {
      EXPECT_EQ(error_with([member = member, bad](Config& c) { c.*member = bad; }),
                std::string("nsa::reference::Config: ") + name + " must be at least 1, got " +
                    std::to_string(bad));
    }
}

TEST(Config, EveryRuleNamesFieldAndValue) {
  const std::string prefix = "nsa::reference::Config: ";
  EXPECT_EQ(error_with([](Config& c) { c.block_stride = 5; }),
            prefix + "block_stride must be a divisor of block_size=32, got 5");
  EXPECT_EQ(error_with([](Config& c) { c.sel_block_size = 40; }),
            prefix + "block_stride must be a divisor of sel_block_size=40, got 16");
  EXPECT_EQ(error_with([](Config& c) { c.sel_block_size = 16; }),
            prefix + "sel_block_size must be at least block_size=32, got 16");
  EXPECT_EQ(error_with([](Config& c) { c.num_kv_heads = 5; }),
            prefix + "num_kv_heads must be a divisor of num_heads=12, got 5");
  EXPECT_EQ(error_with([](Config& c) { c.window = -1; }),
            prefix + "window must be at least 0, got -1");
  EXPECT_EQ(error_with([](Config& c) { c.n_initial = -1; }),
            prefix + "n_initial must be at least 0, got -1");
  EXPECT_EQ(error_with([](Config& c) { c.n_local = 0; }),
            prefix + "n_local must be at least 1, got 0");
  EXPECT_EQ(error_with([](Config& c) { c.top_n = 2; }),
            prefix + "top_n must be at least n_initial + n_local = 1 + 2, got 2");
  EXPECT_THAT(error_with([](Config& c) { c.n_initial = INT64_MAX, c.n_local = 1; }),
              ::testing::HasSubstr("top_n must be at least n_initial + n_local"));
  EXPECT_EQ(error_with([](Config& c) { c.qk_head_dim = 63; }),
            prefix + "qk_head_dim must be even unless rope is none, got 63");
  for (const double bad : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_THAT(error_with([bad](Config& c) { c.rope_base = bad; }),
                ::testing::HasSubstr("rope_base must be positive and finite, got "));
    EXPECT_THAT(error_with([bad](Config& c) { c.scale_cmp = bad; }),
                ::testing::HasSubstr("scale_cmp must be positive and finite, got "));
    EXPECT_THAT(error_with([bad](Config& c) { c.scale_sel = bad; }),
                ::testing::HasSubstr("scale_sel must be positive and finite, got "));
    EXPECT_THAT(error_with([bad](Config& c) { c.scale_win = bad; }),
                ::testing::HasSubstr("scale_win must be positive and finite, got "));
  }
}

}  // namespace
}  // namespace nsa::reference

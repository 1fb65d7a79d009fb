#include "suites/compare/tolerance.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <tuple>

namespace suites {
namespace {

TEST(ToleranceTable, KeysAreUniqueAndEveryRowIsDerivedAndBinding) {
  std::set<std::tuple<std::string_view, std::string_view, at::ScalarType>> keys;
  for (const Tolerance& row : tolerance_table()) {
    EXPECT_TRUE(keys.emplace(row.op, row.tensor, row.input).second) << row.op << " " << row.tensor;
    EXPECT_FALSE(row.derivation.empty());
    const bool fp64 = row.input == at::kDouble;
    EXPECT_EQ(row.row_relative > 0, fp64);
    EXPECT_LE(row.row_relative, row.tensor == "derivative" ? 1e-7 : 1e-11);
    EXPECT_EQ(row.plain_factor, fp64 ? 0 : 2);
    EXPECT_EQ(row.ulps, fp64 ? 0 : 1);
  }
  EXPECT_GE(keys.size(), 60u);
}

TEST(ToleranceTable, UnknownKeyIsNamed) {
  try {
    tolerance("win_attn", "o_wim", at::kFloat);
    FAIL() << "accepted";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(),
                testing::HasSubstr("no row for (win_attn, o_wim, Float)"));
  }
}

TEST(ToleranceTable, OutputTypes) {
  EXPECT_EQ(tolerance("win_attn", "o_win", at::kBFloat16).output, at::kBFloat16);
  EXPECT_EQ(tolerance("win_attn", "lse_win", at::kBFloat16).output, at::kFloat);
  EXPECT_EQ(tolerance("scores", "scores", at::kDouble).output, at::kDouble);
}

}  // namespace
}  // namespace suites

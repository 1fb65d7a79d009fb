#include "suites/compare/compare.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace suites {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

at::Tensor rows(std::initializer_list<double> values, int64_t length) {
  return at::tensor(at::ArrayRef<double>(values.begin(), values.size()), at::kDouble)
      .view({-1, length});
}

CompareContext with_plain(const at::Tensor& plain) {
  CompareContext context;
  context.plain = plain;
  return context;
}
CompareContext with_logit(double max_logit) {
  CompareContext context;
  context.max_logit = max_logit;
  return context;
}

const Tolerance& fp64_rule() { return tolerance("win_attn", "o_win", at::kDouble); }

TEST(Compare, EqualTensorsAgreeWithZeroError) {
  const at::Tensor x = rows({1, 2, 3, 4}, 2);
  const CompareReport report = compare(x, x, fp64_rule());
  EXPECT_TRUE(report.ok) << report.text;
  EXPECT_EQ(report.err, 0);
  EXPECT_EQ(report.elements, 4);
}

TEST(Compare, NamesTheWorstElement) {
  const at::Tensor oracle = rows({1, 2, 3, 4}, 2);
  at::Tensor x = oracle.clone();
  x[1][0] += 0.5;
  const CompareReport report = compare(x, oracle, fp64_rule());
  EXPECT_FALSE(report.ok);
  EXPECT_EQ(report.worst, (std::vector<int64_t>{1, 0}));
  EXPECT_DOUBLE_EQ(report.err, 0.125);  // 0.5 / max(3, 4)
  EXPECT_EQ(report.bad, 1);
  EXPECT_THAT(report.text, testing::HasSubstr("worst at [1,0] got 3.5 oracle 3"));
}

TEST(Compare, ErrorsAreRelativeToTheRow) {
  const at::Tensor oracle = rows({1e-8, 0, 1e8, 0}, 2);
  at::Tensor x = oracle.clone();
  x[0][1] = 1e-10;  // small absolutely, 1 % of its row
  EXPECT_FALSE(compare(x, oracle, fp64_rule()).ok);
  x = oracle.clone();
  x[1][1] = 1e-6;  // 1e-14 of its row
  EXPECT_TRUE(compare(x, oracle, fp64_rule()).ok);
}

TEST(Compare, NonFiniteRules) {
  const at::Tensor oracle = rows({kInf, -kInf, kNan, 1}, 4);
  EXPECT_TRUE(compare(oracle.clone(), oracle, fp64_rule()).ok);
  const auto rejected = [&](std::initializer_list<double> values) {
    return !compare(rows(values, 4), oracle, fp64_rule()).ok;
  };
  EXPECT_TRUE(rejected({-kInf, -kInf, kNan, 1}));
  EXPECT_TRUE(rejected({kNan, -kInf, kNan, 1}));
  EXPECT_TRUE(rejected({kInf, -kInf, 0, 1}));
  EXPECT_TRUE(rejected({kInf, -kInf, kInf, 1}));
  EXPECT_TRUE(rejected({kInf, -kInf, kNan, kNan}));
  EXPECT_TRUE(rejected({1e300, -kInf, kNan, 1}));
}

TEST(Compare, ZeroRowsNeedZeros) {
  const at::Tensor oracle = at::zeros({2, 3}, at::kDouble);
  EXPECT_TRUE(compare(oracle.clone(), oracle, fp64_rule()).ok);
  EXPECT_FALSE(compare(oracle + 1e-300, oracle, fp64_rule()).ok);
}

TEST(Compare, LowPrecisionIsJudgedByTwiceThePlainError) {
  const at::Tensor oracle = rows({1, 0.3, 2, 0.7}, 2);
  const auto& rule = tolerance("win_attn", "o_win", at::kBFloat16);
  CompareContext context = with_plain(oracle + rows({0, 0.02, 0, 0}, 2));
  const auto with_error = [&](double e) {
    return compare((oracle + rows({0, 0, 0, e}, 2)).to(at::kBFloat16), oracle, rule, context);
  };
  EXPECT_TRUE(with_error(0.05).ok);   // 0.025 of its row; allowed 0.04
  EXPECT_FALSE(with_error(0.12).ok);  // 0.06 of its row
  EXPECT_NEAR(with_error(0.05).plain_err, 0.02, 1e-12);
}

TEST(Compare, OneUlpIsAllowedWhenThePlainComputationWasExact) {
  const at::Tensor oracle = rows({1, 0.5}, 2);
  const auto& rule = tolerance("win_attn", "o_win", at::kBFloat16);
  const CompareContext context = with_plain(oracle);
  EXPECT_TRUE(compare((oracle + rows({0x1p-7, 0}, 2)).to(at::kBFloat16), oracle, rule, context).ok);
  EXPECT_FALSE(
      compare((oracle + rows({0x1p-6, 0}, 2)).to(at::kBFloat16), oracle, rule, context).ok);
}

TEST(Compare, LowPrecisionWithoutAPlainComputationFails) {
  const at::Tensor oracle = rows({1, 2}, 2);
  const auto& rule = tolerance("win_attn", "o_win", at::kBFloat16);
  EXPECT_THAT(compare(oracle.to(at::kBFloat16), oracle, rule).text,
              testing::HasSubstr("needs the plain computation"));
  EXPECT_FALSE(compare(oracle.to(at::kBFloat16), oracle, rule, with_plain(oracle * kNan)).ok);
}

TEST(Compare, LargeLogitsWidenTheFp64Allowance) {
  const at::Tensor oracle = rows({1, 2}, 2), x = oracle + 1e-10;
  EXPECT_FALSE(compare(x, oracle, fp64_rule()).ok);
  EXPECT_TRUE(compare(x, oracle, fp64_rule(), with_logit(1e4)).ok);
}

TEST(Compare, NothingWidensTheAllowanceBelowFp64) {
  const at::Tensor oracle = rows({1, 2}, 2);
  const auto& rule = tolerance("win_attn", "o_win", at::kFloat);
  CompareContext context = with_plain(oracle);
  const auto off_by = [&](double ulps) {
    return compare((oracle + ulps * 0x1p-22).to(at::kFloat), oracle, rule, context).ok;
  };
  EXPECT_TRUE(off_by(1));
  EXPECT_FALSE(off_by(2));
  context.max_logit = 1e4;
  context.terms = 1e6;
  EXPECT_FALSE(off_by(2));
}

TEST(Compare, AnUlpDoesNotShrinkBelowTheSmallestNormalNumber) {
  const at::Tensor oracle = rows({0x1p-20, 0}, 2);
  const auto& rule = tolerance("win_attn", "o_win", at::kHalf);
  const auto off_by = [&](double error) {
    return compare((oracle + error).to(at::kHalf), oracle, rule, with_plain(oracle)).ok;
  };
  EXPECT_TRUE(off_by(0x1p-24));
  EXPECT_FALSE(off_by(0x1p-23));
}

TEST(Compare, CancelledTensorsAreJudgedByTheirTerms) {
  const at::Tensor oracle = at::zeros({2, 2}, at::kDouble), x = oracle + 1e-14;
  EXPECT_FALSE(compare(x, oracle, fp64_rule()).ok);
  CompareContext context;
  context.terms = 8;
  EXPECT_TRUE(compare(x, oracle, fp64_rule(), context).ok);
  EXPECT_FALSE(compare(x + 1, oracle, fp64_rule(), context).ok);
  EXPECT_FALSE(compare(x, oracle + 1, fp64_rule(), context).ok);
}

TEST(Compare, ShapeAndTypeMustAgree) {
  const at::Tensor x = rows({1, 2, 3, 4}, 2);
  EXPECT_FALSE(compare(x.view({4, 1}), x, fp64_rule()).ok);
  EXPECT_THAT(compare(x.to(at::kFloat), x, fp64_rule()).text,
              testing::HasSubstr("dtype Float, must be Double"));
  EXPECT_TRUE(compare(x.narrow(0, 0, 0), x.narrow(0, 0, 0), fp64_rule()).ok);
}

TEST(Compare, ExactMeansBitForBit) {
  const at::Tensor x = at::arange(6, at::kInt).view({2, 3});
  EXPECT_TRUE(compare_exact(x.clone(), x).ok);
  at::Tensor y = x.clone();
  y[1][2] = 9;
  EXPECT_EQ(compare_exact(y, x).worst, (std::vector<int64_t>{1, 2}));
  EXPECT_FALSE(compare_exact(x.to(at::kLong), x).ok);
}

}  // namespace
}  // namespace suites

// The comparator must reject injected faults: each test changes a right result in one way a kernel
// gets wrong.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "suites/compare/compare.h"
#include "suites/compare/generators.h"

namespace suites {
namespace {

using at::Tensor;

/// A plausible output [B=2, S=17, Hq=4, D=8] with its low-precision stand-ins.
class Mutants : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    at::Generator generator = make_generator(7);
    oracle_ = make_data({2, 17, 4, 8}, DataKind::kNormal, generator, at::kDouble);
    right_ = oracle_.to(GetParam());
  }
  bool accepted(const Tensor& x) const {
    CompareContext context;
    context.plain = right_;
    return compare(x, oracle_, tolerance("sel_attn", "o_sel", GetParam()), context).ok;
  }
  Tensor oracle_, right_;
};

TEST_P(Mutants, RightResultIsAccepted) { EXPECT_TRUE(accepted(right_)); }

TEST_P(Mutants, OneNan) {
  Tensor x = right_.clone();
  x[1][3][2][5] = std::nan("");
  EXPECT_FALSE(accepted(x));
}

TEST_P(Mutants, AllNan) { EXPECT_FALSE(accepted(at::full_like(right_, std::nan("")))); }

TEST_P(Mutants, OneInfinity) {
  Tensor x = right_.clone();
  x[0][16][3][7] = INFINITY;
  EXPECT_FALSE(accepted(x));
}

TEST_P(Mutants, OffByOneRow) { EXPECT_FALSE(accepted(right_.roll(1, 1))); }

TEST_P(Mutants, SwappedHeads) {
  EXPECT_FALSE(accepted(right_.index_select(2, at::tensor({1, 0, 2, 3}))));
}

TEST_P(Mutants, StaleBuffer) {
  Tensor x = right_.clone();
  x[1][16].zero_();
  EXPECT_FALSE(accepted(x));
}

TEST_P(Mutants, OneStaleElement) {
  Tensor x = right_.clone();
  x[0][0][0][0] = x[0][0][0][0].item<double>() + 1;
  EXPECT_FALSE(accepted(x));
}

TEST_P(Mutants, LowerPrecision) {
  // Rounded to the next lower type on the way: fp64 -> fp32, fp32 -> fp16; bf16 and fp16 -> 5 bits.
  const at::ScalarType type = GetParam();
  Tensor x;
  if (type == at::kDouble)
    x = oracle_.to(at::kFloat).to(type);
  else if (type == at::kFloat)
    x = oracle_.to(at::kHalf).to(type);
  else
    x = ((oracle_ * 16).round() / 16).to(type);
  EXPECT_FALSE(accepted(x));
}

TEST_P(Mutants, WrongType) {
  EXPECT_FALSE(accepted(oracle_.to(GetParam() == at::kDouble ? at::kFloat : at::kDouble)));
}

INSTANTIATE_TEST_SUITE_P(EveryType, Mutants,
                         testing::Values(at::kDouble, at::kFloat, at::kBFloat16, at::kHalf),
                         [](const auto& one) { return std::string(at::toString(one.param)); });

TEST(IndexMutants, OneWrongIndex) {
  const Tensor ids = at::arange(64, at::kInt).view({1, 4, 2, 8});
  Tensor x = ids.clone();
  x[0][3][1][7] = 62;
  EXPECT_FALSE(compare_exact(x, ids).ok);
  EXPECT_TRUE(compare_exact(ids.clone(), ids).ok);
}

}  // namespace
}  // namespace suites

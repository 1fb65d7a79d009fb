#include "suites/bench/targets/repeated_bits.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace suites {
namespace {

TEST(RepeatedBits, EveryBitOfEveryTensorCounts) {
  const at::Tensor a = at::tensor({1.f, 0.f, NAN}), b = at::ones({2, 3}, at::kBFloat16);
  RepeatedBits bits;
  for (int i = 0; i < 3; ++i) bits.add({a, b});
  EXPECT_EQ(bits.differing(), 0);
  at::Tensor sign = a.clone();
  sign[1] = -0.f;
  bits.add({sign, b});
  EXPECT_EQ(bits.differing(), 1);
  at::Tensor last = b.clone();
  last[1][2] = 1.0078125;
  bits.add({a, last});
  bits.add({sign, last});  // one call, whatever differs
  EXPECT_EQ(bits.differing(), 3);
  bits.add({a, b});
  EXPECT_EQ(bits.differing(), 3);
  EXPECT_EQ(bits.calls(), 7);
}

TEST(RepeatedBits, KeepsACopyOfTheFirstTensors) {
  at::Tensor x = at::zeros({4});
  RepeatedBits bits;
  bits.add({x});
  x.fill_(1);
  bits.add({x});
  EXPECT_EQ(bits.differing(), 1);
}

TEST(RepeatedBits, OtherShapesAreErrors) {
  RepeatedBits bits;
  EXPECT_EQ(bits.differing(), 0);
  EXPECT_THROW(bits.add({}), c10::Error);
  RepeatedBits more;
  more.add({at::zeros({2})});
  EXPECT_THROW(more.add({at::zeros({3})}), c10::Error);
  EXPECT_THROW(more.add({at::zeros({2}), at::zeros({2})}), c10::Error);
  EXPECT_THROW(more.add({at::zeros({2}, at::kInt)}), c10::Error);
}

}  // namespace
}  // namespace suites

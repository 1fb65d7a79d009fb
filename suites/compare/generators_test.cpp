#include "suites/compare/generators.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace suites {
namespace {

TEST(Generators, SameSeedSameNumbersInEveryType) {
  for (DataKind kind : all_data_kinds()) {
    at::Generator a = make_generator(5), b = make_generator(5), c = make_generator(6);
    const at::Tensor x = make_data({2, 3, 4, 8}, kind, a, at::kDouble);
    EXPECT_TRUE(at::equal(x.to(at::kBFloat16), make_data({2, 3, 4, 8}, kind, b, at::kBFloat16)));
    EXPECT_FALSE(at::equal(x, make_data({2, 3, 4, 8}, kind, c, at::kDouble)))
        << data_kind_name(kind);
  }
}

TEST(Generators, TiesRepeatOneToken) {
  at::Generator g = make_generator(5);
  const at::Tensor x = make_data({1, 6, 2, 8}, DataKind::kTies, g, at::kDouble);
  EXPECT_TRUE(at::equal(x[0][0], x[0][5]));
  EXPECT_FALSE(at::equal(x[0][0][0], x[0][0][1]));
}

TEST(Generators, LayoutsHoldTheSameValuesElsewhere) {
  at::Generator g = make_generator(5);
  const at::Tensor x = make_data({2, 5, 3, 4}, DataKind::kNormal, g, at::kFloat);
  for (Layout layout : all_layouts()) {
    const at::Tensor y = lay_out(x, layout);
    EXPECT_EQ(y.is_contiguous(), layout == Layout::kContiguous) << layout_name(layout);
    const at::Tensor expected = layout == Layout::kExpanded ? x.narrow(2, 0, 1).expand_as(x) : x;
    EXPECT_TRUE(at::equal(expected, y)) << layout_name(layout);
  }
  EXPECT_EQ(lay_out(x, Layout::kExpanded).stride(2), 0);
  EXPECT_EQ(lay_out(x, Layout::kSliced).storage_offset(), 3 * 4);
}

TEST(Generators, FutureChangesLeaveThePastAlone) {
  at::Generator g = make_generator(5);
  const at::Tensor x = make_data({2, 5, 3, 4}, DataKind::kNormal, g, at::kFloat);
  for (const at::Tensor& y : {poison_after(x, 2, 1e4), randomize_after(x, 2, g)}) {
    EXPECT_TRUE(at::equal(y.narrow(1, 0, 3), x.narrow(1, 0, 3)));
    EXPECT_FALSE(at::equal(y.narrow(1, 3, 2), x.narrow(1, 3, 2)));
  }
  EXPECT_TRUE(at::equal(poison_after(x, 4, 1e4), x));
}

}  // namespace
}  // namespace suites

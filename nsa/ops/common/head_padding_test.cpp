// A branch computed in larger head dims: in fp64 its results and gradients are those of its own
// dims, whichever operator computes it.
#include "nsa/ops/common/head_padding.h"

#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>

#include "nsa/ops/common/test_util.h"
#include "nsa/ops/compressed/cmp_attn.h"
#include "nsa/ops/selected/sel_attn.h"
#include "nsa/ops/window/win_attn.h"

namespace nsa {
namespace {

using torch::autograd::variable_list;

/// {out, lse, ...} of q, k, v with a scale.
using Branch = std::function<variable_list(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                           double scale)>;

Branch padded(const Branch& branch) {
  return [branch](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale) {
    const kernels::HeadDims dims = computed_head_dims(q, v);
    variable_list out =
        branch(padded_heads(q, dims.qk), padded_heads(k, dims.qk), padded_heads(v, dims.v), scale);
    out[0] = narrowed_heads(out[0], v.size(-1));
    return out;
  };
}

/// Outputs, then gradients of q, k and v through the first two.
variable_list results_of(const Branch& branch, variable_list x, const variable_list& upstream) {
  for (at::Tensor& leaf : x) leaf = leaf.detach().requires_grad_(true);
  const double scale = 1.0 / std::sqrt(static_cast<double>(x[0].size(-1)));
  variable_list all = branch(x[0], x[1], x[2], scale);
  const variable_list d = torch::autograd::grad({all[0], all[1]}, x, upstream);
  all.insert(all.end(), d.begin(), d.end());
  return all;
}

void expect_same(const char* name, const Branch& branch, const variable_list& x) {
  SCOPED_TRACE(name);
  const at::Tensor& q = x[0];
  const auto normal = [](std::vector<int64_t> sizes) { return at::randn(sizes, at::kDouble); };
  const variable_list upstream{normal({q.size(0), q.size(1), q.size(2), x[2].size(3)}),
                               normal({q.size(0), q.size(1), q.size(2)})};
  const variable_list have = results_of(padded(branch), x, upstream),
                      want = results_of(branch, x, upstream);
  ASSERT_EQ(have.size(), want.size());
  for (size_t i = 0; i < have.size(); ++i) expect_near(have[i], want[i], 1e-12);
}

variable_list draw(int64_t tokens, int64_t keys, int64_t dk, int64_t dv) {
  const auto normal = [](int64_t s, int64_t heads, int64_t dim) {
    return at::randn({2, s, heads, dim}, at::kDouble);
  };
  return {normal(tokens, 4, dk), normal(keys, 2, dk), normal(keys, 2, dv)};
}

class HeadPadding : public ::testing::TestWithParam<std::pair<int64_t, int64_t>> {
 protected:
  void SetUp() override { at::manual_seed(41); }
};

TEST_P(HeadPadding, BranchesAndTheirGradientsAreThoseOfTheOwnDims) {
  const auto [dk, dv] = GetParam();
  const int64_t tokens = 45;
  expect_same(
      "window",
      [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale) {
        const auto [out, lse] = win_attn(q, k, v, 11, 0, {}, scale);
        return variable_list{out, lse};
      },
      draw(tokens, tokens, dk, dv));
  NsaConfig config;
  config.block_size = 8, config.block_stride = 4;
  expect_same(
      "compressed",
      [config](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale) {
        NsaConfig own = config;
        own.scale_cmp = scale;
        const CmpAttnResult r = cmp_attn(q, k, v, own);
        // Rows without a block have lse = -inf, through which nothing is differentiated.
        return variable_list{r.out, r.lse.masked_fill(r.lse.isinf(), 0.0), r.group_probs};
      },
      draw(tokens, config.num_compressed(tokens), dk, dv));
  const at::Tensor ranges = at::randint(-3, tokens + 4, {2, tokens, 2, 3, 2}, at::kInt);
  expect_same(
      "selected",
      [ranges](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale) {
        const auto [out, lse] = sel_attn(q, k, v, ranges, 0, {}, scale);
        return variable_list{out, lse.masked_fill(lse.isinf(), 0.0)};
      },
      draw(tokens, tokens, dk, dv));
}

INSTANTIATE_TEST_SUITE_P(Dims, HeadPadding,
                         testing::Values(std::pair{96, 96}, std::pair{32, 32}, std::pair{80, 80},
                                         std::pair{7, 24}, std::pair{160, 96}, std::pair{64, 128},
                                         std::pair{64, 64}));

TEST(HeadPadding, LayoutsOfTheHeads) {
  const at::Tensor x = at::randn({2, 3, 5, 4}, at::kDouble).permute({0, 2, 3, 1});
  const at::Tensor wide = padded_heads(x, 8);
  EXPECT_TRUE(wide.is_contiguous());
  EXPECT_EQ(wide.sizes(), at::IntArrayRef({2, 5, 4, 8}));
  EXPECT_TRUE(wide.narrow(-1, 0, 3).equal(x));
  EXPECT_TRUE(wide.narrow(-1, 3, 5).eq(0).all().item<bool>());
  EXPECT_TRUE(narrowed_heads(wide, 3).is_contiguous());
  EXPECT_TRUE(narrowed_heads(wide, 3).equal(x));
  EXPECT_TRUE(padded_heads(x, 3).is_same(x));
  EXPECT_TRUE(narrowed_heads(x, 3).is_same(x));
}

}  // namespace
}  // namespace nsa

// Selection by an index on a GPU: the kernels of the selected branch in the sizes of the paper,
// against plain operators in fp64 on the blocks that were chosen.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "nsa/layer/msa/msa_attention.h"
#include "nsa/ops/select/index_scores.h"

namespace nsa {
namespace {

double off(const at::Tensor& have, const at::Tensor& want) {
  const double scale = want.abs().max().item<double>();
  return (have.to(at::kDouble) - want).abs().max().item<double>() / scale;
}

TEST(MsaOnCuda, KernelsAgreeWithPlainOperators) {
  constexpr int64_t kTokens = 4096, kHeads = 64, kKvHeads = 4, kDim = 128;
  const MsaConfig config;
  at::manual_seed(5);
  const auto options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  const auto draw = [&](std::vector<int64_t> sizes) { return at::randn(sizes, options); };
  const at::Tensor q_idx = draw({1, kTokens, kKvHeads, kDim}), k_idx = draw({1, kTokens, kDim});
  std::vector<at::Tensor> low = {draw({1, kTokens, kHeads, kDim}),
                                 draw({1, kTokens, kKvHeads, kDim}),
                                 draw({1, kTokens, kKvHeads, kDim})},
                          exact;
  for (at::Tensor& x : low) {
    exact.push_back(x.to(at::kDouble).requires_grad_());
    x.requires_grad_();
  }
  NsaOptions kernels;
  kernels.sel = SelBackend::kFused;
  kernels.strict_backend = true;
  const IndexedAttention have =
      attend_by_index(low[0], low[1], low[2], q_idx, k_idx, config, kernels);
  NsaOptions plain;
  plain.block_idx = have.block_idx;
  const IndexedAttention want = attend_by_index(exact[0], exact[1], exact[2], q_idx.to(at::kDouble),
                                                k_idx.to(at::kDouble), config, plain);
  EXPECT_LE(off(have.o.detach(), want.o.detach()), 1.6e-2);
  const at::Tensor d_o = at::randn_like(have.o);
  have.o.backward(d_o);
  want.o.backward(d_o.to(at::kDouble));
  for (size_t i = 0; i < low.size(); ++i)
    EXPECT_LE(off(low[i].grad(), exact[i].grad()), 3e-2) << "gradient " << i;
}

/// Products of bf16 are summed and kept in fp32: scores are those of fp64 but for its rounding.
TEST(MsaOnCuda, ScoresAreExactProductsOfTheInputs) {
  at::manual_seed(6);
  const auto options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  const at::Tensor q = at::randn({2, 700, 2, 64}, options), k = at::randn({2, 700, 64}, options);
  const at::Tensor have = index_scores(q, k, 128),
                   want = index_scores(q.to(at::kDouble), k.to(at::kDouble), 128);
  EXPECT_EQ(have.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(have.isinf(), want.isinf()));
  EXPECT_LE(off(have.nan_to_num(0, 0, 0), want.nan_to_num(0, 0, 0)), 2e-6);
}

}  // namespace
}  // namespace nsa

// Selection by an index on a GPU: the kernels of the selected branch in the sizes of the paper,
// against plain operators in fp64 on the blocks that were chosen.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "nsa/layer/msa/msa_attention.h"
#include "nsa/ops/select/fused_index.h"
#include "nsa/ops/select/index_scores.h"
#include "nsa/ops/select/top_n.h"

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

/// Of small integers, whose products are exact and often equal.
TEST(MsaOnCuda, TheKernelChoosesWhatScoresInFp64Choose) {
  at::manual_seed(7);
  NsaConfig config;
  config.sel_block_size = 128, config.num_initial = 0, config.num_local = 1;
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf})
    for (const int64_t dim : {64, 128})
      for (const auto& [tokens, heads, top_n] :
           {std::array<int64_t, 3>{5000, 4, 16}, {3000, 1, 3}, {1, 2, 16}, {700, 7, 2}}) {
        const auto draw = [&](at::IntArrayRef sizes) {
          return at::randint(-2, 3, sizes, at::kCUDA).to(type);
        };
        // A layout that must be copied first, and one that need not.
        const at::Tensor q = draw({2, heads, tokens, dim}).transpose(1, 2),
                         k = draw({2, tokens, dim + 1}).narrow(2, 0, dim);
        if (tokens > 600) {
          k[0][300][5] = NAN;
          q[1][600][0][9] = INFINITY;
        }
        config.top_n = top_n;
        ASSERT_EQ(choose_index_kernel(q, k, config).obstacle, "");
        const at::Tensor have = select_by_index(q, k, config),
                         scores = index_scores(q.to(at::kDouble), k.to(at::kDouble), 128),
                         t = at::arange(tokens, at::TensorOptions(at::kCUDA).dtype(at::kLong));
        EXPECT_TRUE(at::equal(have, select_blocks(scores, t, config)))
            << type << ", " << tokens << " tokens, " << heads << " heads, di " << dim;
      }
}

TEST(MsaOnCuda, OtherIndexesAreScoredPlainly) {
  const auto options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  const at::Tensor q = at::randn({1, 300, 4, 64}, options), k = at::randn({1, 300, 1, 64}, options),
                   q_idx = at::randn({1, 300, 1, 96}, options),
                   k_idx = at::randn({1, 300, 96}, options);
  NsaOptions kernels;
  kernels.sel = SelBackend::kFused;
  const IndexedAttention out = attend_by_index(q, k, k, q_idx, k_idx, {}, kernels);
  EXPECT_EQ(out.record->rows()[0].backend, "plain");
  EXPECT_EQ(out.record->rows()[0].reason, "heads of an index are 64 or 128 wide");
  kernels.strict_backend = true;
  EXPECT_THROW(attend_by_index(q, k, k, q_idx, k_idx, {}, kernels), c10::Error);
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

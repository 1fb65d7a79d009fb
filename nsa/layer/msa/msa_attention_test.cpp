// Selection by an index, against the oracle (nsa/reference/passes/msa) and by its properties.
#include "nsa/layer/msa/msa_attention.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "nsa/nsa.h"
#include "nsa/ops/common/oracle_util.h"
#include "nsa/ops/select/index_scores.h"
#include "nsa/reference/reference.h"

namespace nsa {
namespace {

namespace ref = reference;
using ::testing::HasSubstr;

struct Sizes {
  int64_t batch, tokens, heads, kv_heads, dk, dv, di, block, top_n;
};

struct Inputs {
  at::Tensor q, k, v, q_idx, k_idx;
};

Inputs draw(const Sizes& s, at::ScalarType type) {
  at::manual_seed(11);
  const auto make = [&](std::vector<int64_t> sizes) {
    return at::randn(sizes, at::kDouble).to(type);
  };
  return {make({s.batch, s.tokens, s.heads, s.dk}), make({s.batch, s.tokens, s.kv_heads, s.dk}),
          make({s.batch, s.tokens, s.kv_heads, s.dv}), make({s.batch, s.tokens, s.kv_heads, s.di}),
          make({s.batch, s.tokens, s.di})};
}

IndexedAttention run(const Inputs& in, const Sizes& s, const NsaOptions& options = {}) {
  return attend_by_index(in.q, in.k, in.v, in.q_idx, in.k_idx,
                         {.block_size = s.block, .top_n = s.top_n}, options);
}

ref::Tensor<double> exact(const at::Tensor& x) { return ref_of<double>(x.to(at::kDouble)); }

/// Largest difference over the largest value; NaN where one has NaN.
double off(const at::Tensor& have, const at::Tensor& want) {
  if (want.numel() == 0) return have.sizes() == want.sizes() ? 0 : NAN;
  const double scale = std::max(1.0, want.abs().max().item<double>());
  return (have.to(at::kDouble) - want).abs().max().item<double>() / scale;
}

const Sizes kCases[] = {{1, 40, 4, 2, 8, 6, 5, 8, 3},  {2, 37, 6, 1, 4, 4, 8, 4, 4},
                        {1, 50, 2, 2, 8, 8, 3, 16, 2}, {1, 7, 2, 1, 8, 8, 4, 16, 4},
                        {1, 30, 4, 4, 4, 4, 2, 1, 5},  {1, 1, 2, 1, 4, 4, 4, 8, 1},
                        {1, 33, 2, 1, 8, 8, 4, 8, 1}};

TEST(MsaAttention, ScoresAndChoiceAreThoseOfTheOracle) {
  for (const Sizes& s : kCases) {
    const Inputs in = draw(s, at::kDouble);
    const ref::MsaSizes sizes{.block_size = s.block, .top_n = s.top_n};
    const auto scores = ref::msa_scores(sizes, exact(in.q_idx), exact(in.k_idx));
    const at::Tensor want = to_aten(scores, at::kDouble),
                     have = index_scores(in.q_idx, in.k_idx, s.block);
    EXPECT_TRUE(at::equal(have.isinf(), want.isinf()));
    EXPECT_LE(off(have.nan_to_num(0, 0, 0), want.nan_to_num(0, 0, 0)), 1e-14);
    EXPECT_TRUE(at::equal(run(in, s).block_idx, to_aten(ref::msa_select(sizes, scores), at::kInt)))
        << s.tokens << " tokens in blocks of " << s.block;
  }
}

TEST(MsaAttention, ForwardAndBackwardAreThoseOfTheOracle) {
  for (const Sizes& s : kCases) {
    Inputs in = draw(s, at::kDouble);
    for (at::Tensor* x : {&in.q, &in.k, &in.v}) x->requires_grad_();
    const IndexedAttention have = run(in, s);
    const ref::MsaSizes sizes{.block_size = s.block, .top_n = s.top_n};
    const auto ids = ref_of<int32_t>(have.block_idx);
    const auto want = ref::msa_attention(sizes, exact(in.q), exact(in.k), exact(in.v), ids);
    EXPECT_LE(off(have.o.detach(), to_aten(want.o, at::kDouble)), 1e-12);
    EXPECT_LE(off(have.lse.detach(), to_aten(want.lse, at::kDouble)), 1e-12);
    const at::Tensor d_o = at::randn_like(have.o);
    have.o.backward(d_o);
    const auto d =
        ref::msa_attention_backward(sizes, exact(in.q), exact(in.k), exact(in.v), ids, exact(d_o));
    EXPECT_LE(off(in.q.grad(), to_aten(d.q, at::kDouble)), 1e-12);
    EXPECT_LE(off(in.k.grad(), to_aten(d.k, at::kDouble)), 1e-12);
    EXPECT_LE(off(in.v.grad(), to_aten(d.v, at::kDouble)), 1e-12);
  }
}

/// What a user calls, by the CPU kernels: rows of the candidate's own blocks, every free block as
/// good as any that was left out.
TEST(MsaAttention, CpuKernelsComputeThePublicCall) {
  const Sizes s{1, 600, 8, 2, 32, 32, 16, 128, 3};
  const ref::MsaSizes sizes{.block_size = s.block, .top_n = s.top_n};
  for (const auto& [type, bound] : {std::pair{at::kFloat, 2e-6}, {at::kBFloat16, 1.6e-2}}) {
    Inputs in = draw(s, type);
    for (at::Tensor* x : {&in.q, &in.k, &in.v}) x->requires_grad_();
    NsaOptions kernels;
    kernels.sel = SelBackend::kCpu;
    kernels.strict_backend = true;
    const IndexedAttention have = run(in, s, kernels);
    const at::Tensor o = msa_attention(in.q, in.k, in.v, in.q_idx, in.k_idx,
                                       {.block_size = s.block, .top_n = s.top_n});
    EXPECT_TRUE(at::equal(o, have.o)) << "the public call runs the kernels";
    const auto want = ref::msa_attention(sizes, exact(in.q), exact(in.k), exact(in.v),
                                         ref_of<int32_t>(have.block_idx));
    EXPECT_LE(off(o.detach(), to_aten(want.o, at::kDouble)), bound);
    const at::Tensor scores =
        to_aten(ref::msa_scores(sizes, exact(in.q_idx), exact(in.k_idx)), at::kDouble);
    for (int64_t t = 2 * s.block; t < s.tokens; t += 37)
      for (int64_t h = 0; h < s.kv_heads; ++h) {
        const at::Tensor row = scores[0][t][h].slice(0, 0, t / s.block);
        const at::Tensor chosen = have.block_idx[0][t][h].slice(0, 0, -1).to(at::kLong);
        EXPECT_EQ(have.block_idx[0][t][h][-1].item<int64_t>(), t / s.block);
        at::Tensor rest = row.clone();
        rest.index_fill_(0, chosen, -std::numeric_limits<double>::infinity());
        EXPECT_GE(row.index_select(0, chosen).min().item<double>(),
                  rest.max().item<double>() - 1e-5);
      }
  }
}

TEST(MsaAttention, LaterTokensChangeNothing) {
  const Sizes s = kCases[0];
  const Inputs in = draw(s, at::kDouble);
  const IndexedAttention whole = run(in, s);
  Inputs other;
  const auto changed = [](const at::Tensor& x) {
    at::Tensor y = x.clone();
    y.slice(1, 23).fill_(7);
    return y;
  };
  other = {changed(in.q), changed(in.k), changed(in.v), changed(in.q_idx), changed(in.k_idx)};
  const IndexedAttention again = run(other, s);
  EXPECT_TRUE(at::equal(whole.o.slice(1, 0, 23), again.o.slice(1, 0, 23)));
  EXPECT_TRUE(at::equal(whole.block_idx.slice(1, 0, 23), again.block_idx.slice(1, 0, 23)));
}

/// Queries in parts have the scores of all at once.
TEST(MsaAttention, ScoresOfAPartAreThoseOfTheWhole) {
  const Sizes s = kCases[1];
  const Inputs in = draw(s, at::kDouble);
  const at::Tensor whole = index_scores(in.q_idx, in.k_idx, s.block);
  const at::Tensor part = index_scores(in.q_idx.slice(1, 10, 21), in.k_idx.slice(1, 0, 21), s.block,
                                       /*first_position=*/10);
  const at::Tensor want = whole.slice(1, 10, 21).slice(-1, 0, part.size(-1));
  EXPECT_TRUE(at::allclose(part, want, 1e-14, 1e-14));
}

TEST(MsaAttention, GivenBlocksReplaceTheIndex) {
  const Sizes s = kCases[0];
  const Inputs in = draw(s, at::kDouble);
  NsaOptions options;
  options.block_idx = at::zeros({1, 40, 2, 1}, at::kLong);
  const IndexedAttention have = run(in, s, options);
  const auto want = ref::msa_attention({.block_size = s.block, .top_n = 1}, exact(in.q),
                                       exact(in.k), exact(in.v), ref_of<int32_t>(have.block_idx));
  EXPECT_TRUE(have.block_idx.eq(0).all().item<bool>());
  EXPECT_LE(off(have.o, to_aten(want.o, at::kDouble)), 1e-12);
}

TEST(MsaAttention, NoTokensGiveNoRows) {
  const Sizes s{2, 0, 4, 2, 8, 6, 5, 8, 3};
  const IndexedAttention have = run(draw(s, at::kDouble), s);
  EXPECT_EQ(have.o.sizes(), (std::vector<int64_t>{2, 0, 4, 6}));
  EXPECT_EQ(have.block_idx.sizes(), (std::vector<int64_t>{2, 0, 2, 3}));
}

/// A NaN of the index stays where its block is: other rows choose as before.
TEST(MsaAttention, ANaNOfTheIndexMakesItsBlockTheLast) {
  const Sizes s = kCases[0];
  Inputs in = draw(s, at::kDouble);
  in.k_idx[0][3][0] = std::numeric_limits<double>::quiet_NaN();
  const IndexedAttention have = run(in, s);
  const ref::MsaSizes sizes{.block_size = s.block, .top_n = s.top_n};
  EXPECT_TRUE(at::equal(
      have.block_idx,
      to_aten(ref::msa_select(sizes, ref::msa_scores(sizes, exact(in.q_idx), exact(in.k_idx))),
              at::kInt)));
  EXPECT_FALSE(have.o.isnan().any().item<bool>());
}

TEST(MsaAttention, RefusesWhatThePaperDoesNotDefine) {
  const Sizes s = kCases[0];
  const auto error = [&](const std::function<void(Inputs&, Sizes&)>& change) -> std::string {
    Inputs in = draw(s, at::kDouble);
    Sizes sizes = s;
    change(in, sizes);
    try {
      run(in, sizes);
    } catch (const c10::Error& e) {
      return e.what_without_backtrace();
    }
    return "no error";
  };
  EXPECT_THAT(
      error([](Inputs& in, Sizes&) { in.q_idx = in.q_idx.repeat({1, 1, 2, 1}); }),
      HasSubstr("nsa::msa_attention: q_idx must be [B, S, Hkv, di]: one head of the index"));
  EXPECT_THAT(error([](Inputs& in, Sizes&) { in.k_idx = in.q_idx; }),
              HasSubstr("nsa::msa_attention: k_idx must be"));
  EXPECT_THAT(error([](Inputs& in, Sizes&) { in.q_idx.requires_grad_(); }),
              HasSubstr("q_idx must not require a gradient"));
  EXPECT_THAT(error([](Inputs& in, Sizes&) { in.k_idx = in.k_idx.to(at::kFloat); }),
              HasSubstr("k_idx must be"));
  EXPECT_THAT(error([](Inputs&, Sizes& z) { z.block = 0; }),
              HasSubstr("nsa::msa_attention: block_size must be"));
  EXPECT_THAT(error([](Inputs&, Sizes& z) { z.top_n = 0; }),
              HasSubstr("nsa::msa_attention: top_n must be"));
  EXPECT_THAT(error([](Inputs& in, Sizes&) {
                in.k = in.k.slice(1, 1);
                in.v = in.v.slice(1, 1);
              }),
              HasSubstr("nsa::msa_attention: k must be"));
}

}  // namespace
}  // namespace nsa

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nsa/layer/nsa_module.h"
#include "nsa/nsa.h"
#include "nsa/ops/common/test_util.h"

namespace nsa {
namespace {

using testing::HasSubstr;

Config decode_config() {
  Config config;
  config.num_heads = 4, config.num_kv_heads = 2;
  config.qk_head_dim = 8, config.v_head_dim = 6;
  config.block_size = 4, config.block_stride = 2, config.sel_block_size = 4;
  config.top_n = 4, config.window = 5;
  return config;
}

struct Tokens {
  at::Tensor q, k, v, gates;
  BranchTensors branches;

  Tokens narrow(int64_t begin, int64_t count) const {
    const auto part = [&](const at::Tensor& x) {
      return x.defined() ? x.narrow(1, begin, count) : x;
    };
    Tokens out{part(q), part(k), part(v), part(gates), {}};
    out.branches.k_sel = part(branches.k_sel), out.branches.v_sel = part(branches.v_sel);
    out.branches.k_win = part(branches.k_win), out.branches.v_win = part(branches.v_win);
    return out;
  }
  at::Tensor decode(DecodeCache& cache, const std::vector<int64_t>& lengths = {}) const {
    return nsa::decode(cache, q, k, v, gates, {}, branches, lengths);
  }
};

Tokens random_tokens(const Config& config, int64_t batch, int64_t num_tokens, bool own_tensors) {
  at::manual_seed(7);
  const auto make = [&](int64_t heads, int64_t dim) {
    return at::randn({batch, num_tokens, heads, dim}, at::kDouble);
  };
  const int64_t heads = config.num_kv_heads, dk = config.qk_head_dim, dv = config.v_head_dim;
  Tokens out{
      make(config.num_heads, dk), make(heads, dk), make(heads, dv), make(config.num_heads, 3), {}};
  if (own_tensors) {
    out.branches.k_sel = make(heads, dk), out.branches.v_sel = make(heads, dv);
    out.branches.k_win = make(heads, dk), out.branches.v_win = make(heads, dv);
  }
  return out;
}

TEST(Decode, StepsBehindAPrefillAreTheRowsOfTheWholeCall) {
  for (const bool own_tensors : {false, true}) {
    const Config config = decode_config();
    const Tokens all = random_tokens(config, 2, 23, own_tensors);
    const at::Tensor want = attention(all.q, all.k, all.v, all.gates, config, {}, all.branches);
    DecodeCache cache(config, 2, 23, at::kDouble);
    std::vector<at::Tensor> rows{all.narrow(0, 11).decode(cache)};
    for (int64_t t = 11; t < 23; ++t) rows.push_back(all.narrow(t, 1).decode(cache));
    expect_near(at::cat(rows, 1), want, 1e-12);
    EXPECT_EQ(cache.num_tokens(1), 23);
  }
}

TEST(Decode, SequencesOfDifferentLengths) {
  const Config config = decode_config();
  const Tokens all = random_tokens(config, 2, 20, false);
  const at::Tensor want = attention(all.q, all.k, all.v, all.gates, config);
  DecodeCache cache(config, 2, 20, at::kDouble);
  const at::Tensor first = all.narrow(0, 9).decode(cache, {9, 4});
  expect_near(first[0], want[0].narrow(0, 0, 9), 1e-12);
  expect_near(first[1].narrow(0, 0, 4), want[1].narrow(0, 0, 4), 1e-12);
  EXPECT_EQ(first[1].narrow(0, 4, 5).abs().max().item<double>(), 0);
  // The next token of each sequence: 9 of the first, 4 of the second.
  const Tokens a = all.narrow(9, 1), b = all.narrow(4, 1);
  const auto next = [](const at::Tensor& x, const at::Tensor& y) {
    return at::stack({x[0], y[1]});
  };
  const at::Tensor o =
      decode(cache, next(a.q, b.q), next(a.k, b.k), next(a.v, b.v), next(a.gates, b.gates));
  expect_near(o[0], want[0].narrow(0, 9, 1), 1e-12);
  expect_near(o[1], want[1].narrow(0, 4, 1), 1e-12);
  cache.reset(0);
  EXPECT_EQ(cache.num_tokens(0), 0);
  EXPECT_EQ(cache.num_tokens(1), 5);
}

TEST(Decode, StepsOfDraftedTokensThatArePartlyTakenBack) {
  const Config config = decode_config();
  const Tokens all = random_tokens(config, 2, 30, true);
  const at::Tensor want = attention(all.q, all.k, all.v, all.gates, config, {}, all.branches);
  DecodeCache cache(config, 2, 30, at::kDouble);
  all.narrow(0, 11).decode(cache);
  for (int64_t t = 11; t + 4 <= 30; t += 3) {
    expect_near(all.narrow(t, 4).decode(cache), want.narrow(1, t, 4), 1e-12);
    for (const int64_t sequence : {0, 1}) cache.truncate(sequence, t + 3);
    EXPECT_EQ(cache.num_tokens(1), t + 3);
  }
  EXPECT_THAT(error_of([&] { cache.truncate(0, 3); }),
              HasSubstr("num_tokens of sequence 0 must be at least"));
}

TEST(Decode, IsRefusedByName) {
  const Config config = decode_config();
  const Tokens all = random_tokens(config, 1, 6, false);
  DecodeCache cache(config, 1, 4, at::kDouble);
  EXPECT_THAT(error_of([&] { all.decode(cache); }),
              HasSubstr("tokens of sequence 0 must be at most capacity = 4"));
  EXPECT_EQ(cache.num_tokens(0), 0);
  EXPECT_THAT(error_of([&] { all.decode(cache, {1, 2}); }),
              HasSubstr("lengths must be 1 numbers, one a sequence, got 2"));
  BranchTensors compressed;
  compressed.k_cmp = all.k;
  EXPECT_THAT(error_of([&] { decode(cache, all.q, all.k, all.v, all.gates, {}, compressed); }),
              HasSubstr("k_cmp and v_cmp must be absent"));
  EXPECT_THAT(error_of([&] { decode(cache, at::Tensor(), all.k, all.v, all.gates); }),
              HasSubstr("nsa::decode: q must be"));
  EXPECT_THAT(error_of([&] { cache.num_tokens(1); }), HasSubstr("sequence must be in 0..0, got 1"));
  Config conv = config;
  conv.phi = Phi::kConv;
  EXPECT_THAT(error_of([&] { DecodeCache(conv, 1, 4, at::kDouble); }),
              HasSubstr("config.phi must be mean, got conv"));
  conv = config;
  conv.top_n = 0;
  EXPECT_THAT(error_of([&] { DecodeCache(conv, 1, 4, at::kDouble); }), HasSubstr("top_n"));
}

TEST(AttentionModule, IsTheLayerUnderTheSameNames) {
  for (const Phi phi : {Phi::kMean, Phi::kMlp}) {
    Config config = decode_config();
    config.phi = phi;
    at::manual_seed(3);
    Attention module(10, config);
    at::manual_seed(3);
    NsaAttention layer(10, config);
    ASSERT_EQ(module->named_parameters().keys(), layer->named_parameters().keys());
    module->to(at::kDouble);
    layer->to(at::kDouble);
    const at::Tensor x = at::randn({2, 17, 10}, at::kDouble).requires_grad_();
    const at::Tensor y = module->forward(x);
    EXPECT_TRUE(y.equal(layer->forward(x)));
    y.sum().backward();
    for (const auto& parameter : module->named_parameters())
      EXPECT_TRUE(parameter.value().grad().defined()) << parameter.key();
  }
}

TEST(AttentionModule, DecodesWhatItComputesAtOnce) {
  Config config = decode_config();
  config.phi = Phi::kConv;
  Attention module(10, config);
  module->to(at::kDouble);
  const at::NoGradGuard no_graph;
  const at::Tensor x = at::randn({2, 17, 10}, at::kDouble);
  DecodeCache cache = module->make_cache(2, 17, at::kDouble);
  std::vector<at::Tensor> rows{module->forward(x.narrow(1, 0, 8), cache)};
  for (int64_t t = 8; t < 17; ++t) rows.push_back(module->forward(x.narrow(1, t, 1), cache));
  expect_near(at::cat(rows, 1), module->forward(x), 1e-12);
  const at::Tensor packed = module->forward(x.flatten(0, 1), at::tensor({0, 17, 34}, at::kInt));
  expect_near(packed.view({2, 17, 10}), module->forward(x), 1e-12);
}

}  // namespace
}  // namespace nsa

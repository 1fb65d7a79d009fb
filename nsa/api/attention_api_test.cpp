#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "nsa/api/attention_call.h"
#include "nsa/debug.h"
#include "nsa/layer/nsa_attention.h"
#include "nsa/nsa.h"

namespace nsa {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using torch::autograd::variable_list;

Config small_config() {
  Config config;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.qk_head_dim = 8;
  config.v_head_dim = 6;
  config.block_size = 4;
  config.block_stride = 2;
  config.sel_block_size = 4;
  config.top_n = 4;
  config.window = 5;
  return config;
}

struct Tensors {
  at::Tensor q, k, v, gates;
  variable_list list() const { return {q, k, v, gates}; }
};

Tensors random_tensors(const Config& config, at::IntArrayRef rows,
                       at::ScalarType type = at::kDouble) {
  at::manual_seed(7);
  const auto make = [&](int64_t heads, int64_t dim) {
    std::vector<int64_t> sizes = rows.vec();
    sizes.insert(sizes.end(), {heads, dim});
    return at::randn(sizes, at::kDouble).to(type).requires_grad_();
  };
  return {make(config.num_heads, config.qk_head_dim), make(config.num_kv_heads, config.qk_head_dim),
          make(config.num_kv_heads, config.v_head_dim), make(config.num_heads, 3)};
}

/// The layer call on the same tensors.
NsaInputs layer_inputs(const Tensors& t) {
  NsaInputs in;
  in.q = t.q;
  in.k_cmp_src = in.k_sel = in.k_win = t.k;
  in.v_cmp_src = in.v_sel = in.v_win = t.v;
  in.gate_logits = t.gates;
  return in;
}

variable_list gradients(const at::Tensor& o, const variable_list& inputs) {
  at::manual_seed(8);
  return torch::autograd::grad({o}, inputs, {at::randn_like(o)});
}

template <class F>
std::string error_of(F call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

TEST(Attention, HasTheBitsOfTheLayerCall) {
  const Config config = small_config();
  Options plain;
  plain.backend = Backend::kPlain;  // backend auto: nsa/ops/cpu/cpu_backend_test.cpp
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const Tensors t = random_tensors(config, {2, 19}, type);
    const at::Tensor o = attention(t.q, t.k, t.v, t.gates, config, plain);
    const at::Tensor want = nsa_attention(layer_inputs(t), config).o;
    EXPECT_TRUE(o.equal(want)) << type;
    const variable_list have = gradients(o, t.list()), expected = gradients(want, t.list());
    for (size_t i = 0; i < have.size(); ++i)
      EXPECT_TRUE(have[i].equal(expected[i])) << type << " " << kCallTensors[i];
  }
}

TEST(Attention, TakesAScaleForEachBranch) {
  Config config = small_config();
  config.scale_cmp = 1.5, config.scale_sel = 0.6, config.scale_win = 0.1;
  const Tensors t = random_tensors(config, {2, 19});
  const at::Tensor o = attention(t.q, t.k, t.v, t.gates, config);
  const at::Tensor want = nsa_attention(layer_inputs(t), config).o;
  EXPECT_TRUE(o.equal(want));
  EXPECT_FALSE(o.equal(attention(t.q, t.k, t.v, t.gates, small_config())));
  const variable_list have = gradients(o, t.list()), expected = gradients(want, t.list());
  for (size_t i = 0; i < have.size(); ++i)
    EXPECT_TRUE(have[i].equal(expected[i])) << kCallTensors[i];
  for (const auto scale : {&Config::scale_cmp, &Config::scale_sel, &Config::scale_win}) {
    Config one = small_config();
    one.*scale = 0.75;
    const Options strict{.backend = Backend::kFused, .strict = true};
    EXPECT_THAT(error_of([&] { attention(t.q, t.k, t.v, t.gates, one, strict); }),
                HasSubstr("backend must be fused"));
    one.*scale = 0.0;
    EXPECT_THAT(error_of([&] { attention(t.q, t.k, t.v, t.gates, one); }),
                HasSubstr("must be a positive finite number, got 0"));
  }
}

TEST(Attention, AWindowOfZeroIsNoBranch) {
  Config config = small_config();
  config.window = 0;
  const Tensors t = random_tensors(config, {2, 19});
  BranchTensors own;
  own.k_win = at::full_like(t.k, std::nan("")).requires_grad_();
  own.v_win = at::full_like(t.v, std::nan("")).requires_grad_();
  const at::Tensor o = attention(t.q, t.k, t.v, t.gates, config, {}, own);
  EXPECT_TRUE(o.equal(nsa_attention(layer_inputs(t), config).o));
  EXPECT_TRUE(o.isfinite().all().item<bool>());
  for (const at::Tensor& gradient : gradients(o, {own.k_win, own.v_win}))
    EXPECT_TRUE(gradient.eq(0).all().item<bool>());
  config.window = -1;
  EXPECT_THAT(error_of([&] { attention(t.q, t.k, t.v, t.gates, config); }),
              HasSubstr("window must be at least 0, got -1"));
}

TEST(Attention, TakesHalfSplitPairs) {
  Config config = small_config();
  config.rope_pairs = RopePairs::kHalfSplit;
  const Tensors t = random_tensors(config, {2, 19});
  const at::Tensor o = attention(t.q, t.k, t.v, t.gates, config);
  const at::Tensor want = nsa_attention(layer_inputs(t), config).o;
  EXPECT_TRUE(o.equal(want));
  EXPECT_FALSE(o.equal(attention(t.q, t.k, t.v, t.gates, small_config())));
  const variable_list have = gradients(o, t.list()), expected = gradients(want, t.list());
  for (size_t i = 0; i < have.size(); ++i)
    EXPECT_TRUE(have[i].equal(expected[i])) << kCallTensors[i];
}

TEST(Attention, PackedDocumentsHaveTheBitsOfTheLayerCall) {
  const Config config = small_config();
  const Tensors t = random_tensors(config, {23});
  const at::Tensor offsets = at::tensor({0, 3, 3, 20, 23}, at::kInt);
  const at::Tensor o = attention_varlen(t.q, t.k, t.v, t.gates, offsets, config);
  NsaInputs in = layer_inputs(t);
  in.cu_seqlens = offsets;
  const at::Tensor want = nsa_attention(in, config).o;
  EXPECT_TRUE(o.equal(want));
  const variable_list have = gradients(o, t.list()), expected = gradients(want, t.list());
  for (size_t i = 0; i < have.size(); ++i) EXPECT_TRUE(have[i].equal(expected[i]));
}

TEST(Intermediates, AreThoseOfTheLayerCall) {
  const Config config = small_config();
  const Tensors t = random_tensors(config, {2, 19});
  const Intermediates have = attention_intermediates(t.q, t.k, t.v, t.gates, config);
  const NsaOutputs want = nsa_attention(layer_inputs(t), config);
  const std::vector<std::pair<at::Tensor, at::Tensor>> pairs{
      {have.o, want.o},           {have.o_cmp, want.o_cmp},         {have.o_sel, want.o_sel},
      {have.o_win, want.o_win},   {have.lse_cmp, want.lse_cmp},     {have.lse_sel, want.lse_sel},
      {have.q_rot, want.q_rot},   {have.lse_win, want.lse_win},     {have.k_cmp, want.k_cmp},
      {have.v_cmp, want.v_cmp},   {have.block_idx, want.block_idx}, {have.ranges, want.ranges},
      {have.scores, want.scores}, {have.gates, want.gates}};
  for (size_t i = 0; i < pairs.size(); ++i) EXPECT_TRUE(pairs[i].first.equal(pairs[i].second)) << i;
  EXPECT_THAT(have.ran, HasSubstr("sel_attn: gather"));
  BranchTensors own;
  own.k_cmp = have.k_cmp, own.v_cmp = have.v_cmp;
  const Intermediates given = attention_intermediates(t.q, t.k, t.v, t.gates, config, {}, own);
  EXPECT_TRUE(given.o.equal(have.o));
  EXPECT_TRUE(given.scores.equal(have.scores));
  EXPECT_THAT(given.ran, HasSubstr("cmp_attn: plain"));
  const Intermediates none =
      attention_intermediates(t.q, t.k, t.v, t.gates, config, {}, {}, {}, /*with_scores=*/false);
  EXPECT_FALSE(none.scores.defined());
  EXPECT_TRUE(none.o.equal(have.o));
}

TEST(Intermediates, TakePackedDocumentsAndRefuseAsTheCall) {
  const Config config = small_config();
  const Tensors t = random_tensors(config, {23});
  const at::Tensor offsets = at::tensor({0, 3, 3, 20, 23}, at::kInt);
  const Intermediates steps =
      attention_intermediates(t.q, t.k, t.v, t.gates, config, {}, {}, offsets);
  EXPECT_TRUE(steps.o.equal(attention_varlen(t.q, t.k, t.v, t.gates, offsets, config)));
  EXPECT_EQ(steps.block_idx.size(0), 23);
  EXPECT_THAT(error_of([&] { attention_intermediates(t.q, t.k, t.v, t.gates, config); }),
              HasSubstr("q must be of rank 4"));
}

TEST(Attention, OneProjectionHasTheBitsOfItsParts) {
  const Config config = small_config();  // dv = 6 differs from dk = 8
  const Tensors t = random_tensors(config, {2, 19});
  const at::Tensor qkv =
      at::cat({t.q.flatten(2), t.k.flatten(2), t.v.flatten(2)}, -1).detach().requires_grad_();
  const at::Tensor o = attention_qkvpacked(qkv, t.gates, config);
  const at::Tensor want = attention(t.q, t.k, t.v, t.gates, config);
  EXPECT_TRUE(o.equal(want));
  const variable_list have = gradients(o, {qkv, t.gates}), parts = gradients(want, t.list());
  EXPECT_TRUE(
      have[0].equal(at::cat({parts[0].flatten(2), parts[1].flatten(2), parts[2].flatten(2)}, -1)));
  EXPECT_TRUE(have[1].equal(parts[3]));
}

TEST(Attention, RefusesAProjectionOfAnotherWidth) {
  const Config config = small_config();
  const at::Tensor gates = at::zeros({1, 5, 4, 3});
  const auto error = [&](const at::Tensor& qkv, const Config& c) {
    return error_of([&] { attention_qkvpacked(qkv, gates, c); });
  };
  EXPECT_THAT(
      error(at::zeros({1, 5, 61}), config),
      HasSubstr("qkv must be [B, S, num_heads * dk + num_kv_heads * (dk + dv)] for num_heads "
                "= 4, num_kv_heads = 2, dv = 6, got width 61, for which dk is no whole"));
  EXPECT_THAT(error(at::zeros({1, 5, 4, 15}), config), HasSubstr("qkv must be of rank 3"));
  EXPECT_THAT(error({}, config), HasSubstr("qkv must be a tensor, got an undefined"));
  Config none = config;
  none.num_kv_heads = 0;
  EXPECT_THAT(error(at::zeros({1, 5, 60}), none), HasSubstr("num_kv_heads must be at least 1"));
}

TEST(Attention, MaxSeqlenBoundsTheDocuments) {
  const Config config = small_config();
  const Tensors t = random_tensors(config, {23});
  const at::Tensor offsets = at::tensor({0, 3, 3, 20, 23}, at::kInt);
  const auto call = [&](std::optional<int64_t> max_seqlen) {
    return attention_varlen(t.q, t.k, t.v, t.gates, offsets, config, {}, {}, max_seqlen);
  };
  EXPECT_TRUE(call(17).equal(call({})));
  EXPECT_THAT(error_of([&] { call(16); }),
              HasSubstr("document 2 of cu_seqlens must be of at most max_seqlen = 16 tokens, got "
                        "17; raise max_seqlen or leave it out"));
  EXPECT_THAT(error_of([&] { call(-1); }), HasSubstr("max_seqlen must be at least 0, got -1"));
}

TEST(Attention, SharedKeysGetTheSumOfTheBranchesGradients) {
  const Config config = small_config();
  const Tensors t = random_tensors(config, {1, 17});
  BranchTensors own;
  for (at::Tensor* k : {&own.k_sel, &own.k_win}) *k = t.k.detach().clone().requires_grad_();
  const at::Tensor shared = attention(t.q, t.k, t.v, t.gates, config);
  const at::Tensor apart = attention(t.q, t.k, t.v, t.gates, config, {}, own);
  EXPECT_TRUE(shared.equal(apart));
  const at::Tensor sum = gradients(shared, {t.k})[0];
  const variable_list parts = gradients(apart, {t.k, own.k_sel, own.k_win});
  EXPECT_TRUE(at::allclose(sum, parts[0] + parts[1] + parts[2], 1e-12, 1e-12));
}

TEST(Attention, GivenResultsOfCompressionReplaceIt) {
  Config config = small_config();
  const Tensors t = random_tensors(config, {2, 18});
  BranchTensors own;
  std::tie(own.k_cmp, own.v_cmp) = compress(t.k, t.v, {}, {}, config);
  const at::Tensor o = attention(t.q, t.k, t.v, t.gates, config, {}, own);
  const at::Tensor want = attention(t.q, t.k, t.v, t.gates, config);
  EXPECT_TRUE(o.equal(want));
  const variable_list have = gradients(o, t.list()), expected = gradients(want, t.list());
  for (size_t i = 0; i < have.size(); ++i)
    EXPECT_TRUE(at::allclose(have[i], expected[i], 1e-12, 1e-12)) << kCallTensors[i];
}

TEST(Attention, BlockIdsAreASet) {
  const Config config = small_config();
  const Tensors t = random_tensors(config, {1, 16});
  const at::Tensor ids = at::tensor({2, 0, 0, -1, 99}, at::kLong).expand({1, 16, 2, 5});
  const at::Tensor ascending = at::tensor({0, 2}, at::kInt).expand({1, 16, 2, 2});
  Options any, sorted;
  any.block_idx = ids;
  sorted.block_idx = ascending;
  EXPECT_TRUE(attention(t.q, t.k, t.v, t.gates, config, any)
                  .equal(attention(t.q, t.k, t.v, t.gates, config, sorted)));
}

TEST(Attention, ViewsEmptyBatchesAndShortSequences) {
  const Config config = small_config();
  const Tensors t = random_tensors(config, {2, 12});
  const at::Tensor strided = t.q.detach().transpose(1, 2).contiguous().transpose(1, 2);
  EXPECT_TRUE(attention(strided, t.k, t.v, t.gates, config)
                  .equal(attention(t.q, t.k, t.v, t.gates, config)));
  for (const int64_t tokens : {0, 1, 2, 3}) {
    const Tensors s = random_tensors(config, {2, tokens});
    const at::Tensor o = attention(s.q, s.k, s.v, s.gates, config);
    EXPECT_EQ(o.sizes(), (std::vector<int64_t>{2, tokens, 4, 6}));
    EXPECT_TRUE(o.isfinite().all().item<bool>());
    for (const at::Tensor& g : gradients(o, s.list()))
      EXPECT_TRUE(g.isfinite().all().item<bool>()) << tokens;
  }
  const Tensors none = random_tensors(config, {0, 12});
  EXPECT_EQ(attention(none.q, none.k, none.v, none.gates, config).numel(), 0);
}

TEST(Attention, SomeGradientsAlone) {
  const Config config = small_config();
  Tensors t = random_tensors(config, {1, 14});
  const at::Tensor all = gradients(attention(t.q, t.k, t.v, t.gates, config), {t.v})[0];
  for (at::Tensor* x : {&t.q, &t.k, &t.gates}) *x = x->detach();
  EXPECT_TRUE(gradients(attention(t.q, t.k, t.v, t.gates, config), {t.v})[0].equal(all));
}

TEST(Attention, RefusesByTheCallersNames) {
  const Config config = small_config();
  const Tensors t = random_tensors(config, {2, 12});
  const auto error = [&](const Config& c, const Tensors& x, const Options& o = {},
                         const BranchTensors& own = {}) {
    return error_of([&] { attention(x.q, x.k, x.v, x.gates, c, o, own); });
  };
  Config bad = config;
  bad.top_n = 0;
  EXPECT_THAT(error(bad, t), HasSubstr("top_n must be"));
  bad = config;
  bad.phi = Phi::kMlp;
  EXPECT_THAT(error(bad, t), HasSubstr("phi must be mean, got mlp; give its results as k_cmp"));
  Tensors x = t;
  x.q = t.q.narrow(2, 0, 3);
  EXPECT_THAT(error(config, x),
              HasSubstr("NsaConfig: num_kv_heads must be a divisor of num_heads = 3, got 2"));
  x = t;
  x.q = t.q.select(0, 0);
  EXPECT_THAT(error(config, x), HasSubstr("nsa::attention: q must be of rank 4 [B, S, Hq, dk]"));
  x = t;
  x.v = t.v.narrow(1, 0, 11);
  EXPECT_THAT(error(config, x), HasSubstr("v must be [B, S, Hkv, dv] = [2, 12, 2, 6], got "
                                          "[2, 11, 2, 6]"));
  x = t;
  x.k = t.k.to(at::kFloat);
  EXPECT_THAT(error(config, x), HasSubstr("k must be"));
  x = t;
  x.q = t.q.narrow(1, 9, 3), x.gates = t.gates.narrow(1, 9, 3);
  EXPECT_THAT(error(config, x), HasSubstr("q must have as many tokens as k, got 3 and 12; fewer "
                                          "queries than keys are not covered"));
  bad = config;
  bad.top_n = 2;
  EXPECT_THAT(error(bad, t), HasSubstr("top_n must be at least num_initial + num_local = 1 + 2"));
  bad = config;
  bad.num_local = 0;
  EXPECT_THAT(error(bad, t), HasSubstr("num_local must be at least 1, got 0"));
  Options ids;
  ids.block_idx = at::zeros({2, 3, 2, 4}, at::kInt);  // of blocks of queries
  EXPECT_THAT(error(config, t, ids),
              HasSubstr("nsa::attention: block_idx must be [B, S, Hkv, K] = [2, 12, 2, 4], ids for "
                        "each query, got [2, 3, 2, 4]"));
  ids.block_idx = at::zeros({2, 12, 2, 4}, at::kFloat);
  EXPECT_THAT(error(config, t, ids), HasSubstr("nsa::attention: block_idx must be"));
  BranchTensors own;
  own.k_cmp = t.k;
  EXPECT_THAT(error(config, t, {}, own), HasSubstr("k_cmp and v_cmp must be given together"));
  own.v_cmp = t.v;
  EXPECT_THAT(error(config, t, {}, own),
              HasSubstr("k_cmp must be [B, N_c, Hkv, dk] = [2, 5, 2, 8]"));
  Options strict;
  strict.backend = Backend::kFused;
  strict.strict = true;
  EXPECT_THAT(error(config, t, strict), HasSubstr("fused"));
  EXPECT_THAT(why_not_fused(t.q, t.k, t.v, t.gates, config), HasSubstr("compressed branch: "));
}

TEST(Attention, RefusesDoubleBackward) {
  const Config config = small_config();
  const Tensors t = random_tensors(config, {1, 9});
  const at::Tensor o = attention(t.q, t.k, t.v, t.gates, config);
  EXPECT_THAT(error_of([&] {
                torch::autograd::grad({o.sum()}, {t.q}, {}, /*retain_graph=*/true,
                                      /*create_graph=*/true);
              }),
              HasSubstr("double backward is not supported"));
}

TEST(LayerOptions, FollowBackendAndDevice) {
  EXPECT_EQ(layer_options(Backend::kAuto, false, false).sel, SelBackend::kGather);
  EXPECT_EQ(layer_options(Backend::kAuto, false, true).sel, SelBackend::kFused);
  EXPECT_EQ(layer_options(Backend::kPlain, false, true).cmp, BranchBackend::kPlain);
  EXPECT_EQ(layer_options(Backend::kFused, true, false).win, BranchBackend::kFused);
  EXPECT_TRUE(layer_options(Backend::kFused, true, false).strict_backend);
  EXPECT_FALSE(layer_options(Backend::kAuto, true, true).strict_backend);
}

TEST(Version, IsThatOfTheProject) { EXPECT_THAT(version(), testing::MatchesRegex("[0-9.]+")); }

}  // namespace
}  // namespace nsa

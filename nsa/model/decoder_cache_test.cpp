// Token by token through the caches of every layer: the same logits as the whole sequence.
#include "nsa/model/decoder_cache.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nsa {
namespace {

using ::testing::HasSubstr;

ModelConfig small_model() {
  ModelConfig config;
  config.name = "small";
  config.dim = 24;
  config.num_layers = 2;
  config.mlp_hidden = 16;
  NsaConfig& c = config.attention;
  c.num_heads = 4, c.num_kv_heads = 2, c.qk_head_dim = 8, c.v_head_dim = 6;
  c.block_size = 8, c.block_stride = 4, c.sel_block_size = 8, c.top_n = 3, c.window = 12;
  c.phi = Phi::kMlp;
  return config;
}

Decoder double_model() {
  at::manual_seed(4);
  Decoder model(small_model());
  model->to(at::kDouble);
  model->compute_type = at::kDouble;
  return model;
}

bool near(const at::Tensor& a, const at::Tensor& b) {
  return at::allclose(a, b, /*rtol=*/1e-11, /*atol=*/1e-12);
}

TEST(DecoderCache, LogitsOfStepsAreThoseOfTheWholeSequence) {
  Decoder model = double_model();
  const at::Tensor tokens = at::randint(256, {3, 40}, at::kLong);
  const at::Tensor want = model->forward(tokens).logits.detach();
  DecoderCache cache(model, 3, 40);
  const std::vector<int64_t> lengths{0, 9, 30};
  const at::Tensor first = cache.prefill(tokens.slice(1, 0, 30), lengths);
  for (int64_t b = 1; b < 3; ++b) {
    const int64_t length = lengths[static_cast<size_t>(b)];
    EXPECT_TRUE(near(first[b].slice(0, 0, length), want[b].slice(0, 0, length))) << b;
  }
  for (int64_t s = 0; s < 40; ++s) {
    std::vector<int64_t> active;
    std::vector<at::Tensor> token, expected;
    for (int64_t b = 0; b < 3; ++b) {
      const int64_t t = lengths[static_cast<size_t>(b)] + s;
      if (t >= 40) continue;
      active.push_back(b);
      token.push_back(tokens[b].slice(0, t, t + 1));
      expected.push_back(want[b].slice(0, t, t + 1));
    }
    const at::Tensor logits = cache.step(at::stack(token), active);
    ASSERT_TRUE(near(logits, at::stack(expected))) << "step " << s;
    ASSERT_FALSE(logits.requires_grad());
  }
  EXPECT_EQ(cache.layer(1).num_tokens(0), 40);
}

TEST(DecoderCache, DraftedTokensThatAreTakenBackLeaveNothing) {
  Decoder model = double_model();
  const at::Tensor tokens = at::randint(256, {2, 40}, at::kLong);
  const at::Tensor want = model->forward(tokens).logits.detach();
  DecoderCache cache(model, 2, 48);
  cache.prefill(tokens, {20, 20});
  for (int64_t t = 20; t + 5 <= 40; t += 5) {
    at::Tensor drafted = tokens.slice(1, t, t + 5).clone();
    drafted.slice(1, 3).fill_(7);  // of five tokens three are right
    EXPECT_TRUE(near(cache.step(drafted).slice(1, 0, 3), want.slice(1, t, t + 3))) << t;
    for (const int64_t sequence : {0, 1}) cache.truncate(sequence, t + 3);
    EXPECT_TRUE(near(cache.step(tokens.slice(1, t + 3, t + 5)), want.slice(1, t + 3, t + 5))) << t;
  }
  EXPECT_EQ(cache.layer(1).num_tokens(0), 40);
}

TEST(DecoderCache, AResetSequenceStartsAgain) {
  Decoder model = double_model();
  const at::Tensor tokens = at::randint(256, {1, 20}, at::kLong);
  DecoderCache cache(model, 1, 20);
  const at::Tensor first = cache.prefill(tokens, {20});
  try {
    cache.step(tokens.slice(1, 0, 1));
    FAIL() << "accepted";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(),
                HasSubstr("nsa::DecodeCache: tokens of sequence 0 must be at most capacity = 20 "
                          "(make the cache larger or reset the sequence), got 21"));
  }
  cache.reset(0);
  EXPECT_TRUE(at::equal(cache.prefill(tokens, {20}), first));
}

TEST(DecoderCache, RefusesADenseModel) {
  ModelConfig config = small_model();
  config.attention_kind = AttentionKind::kDense;
  try {
    const DecoderCache none(Decoder(config), 1, 16);
    FAIL();
  } catch (const c10::Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("model must attend with NSA, got the dense model small"));
  }
}

}  // namespace
}  // namespace nsa

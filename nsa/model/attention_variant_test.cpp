// One model with its branches switched off one by one, and its dense counterpart.
#include "nsa/model/attention_variant.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nsa/model/blocks/loss.h"
#include "nsa/model/decoder.h"
#include "nsa/model/decoder_cache.h"
#include "nsa/program/input_error.h"

namespace nsa {
namespace {

using ::testing::HasSubstr;

ModelConfig small() {
  ModelConfig config;
  config.name = "small";
  config.vocab = 32;
  config.dim = 32;
  config.num_layers = 2;
  config.mlp_hidden = 48;
  config.seq_len = 64;
  config.attention = tiny_cpu();
  return config;
}

Decoder made(const ModelConfig& config) {
  at::manual_seed(3);
  return Decoder(config);
}

const std::pair<const char*, const char*> kOff[] = {
    {"no_compressed", "_cmp"}, {"no_selected", "_sel"}, {"no_window", "_win"}};

TEST(AttentionVariant, TheGateOfABranchThatIsOffIsZeroAndSoAreItsGradients) {
  at::manual_seed(1);
  const at::Tensor tokens = at::randint(32, {2, 65}, at::kLong);
  for (const GateActivation gate : {GateActivation::kSoftmax, GateActivation::kSigmoid})
    for (int64_t branch = 0; branch < 3; ++branch) {
      ModelConfig config = small();
      config.attention.gate = gate;
      Decoder model = made(with_attention(config, kOff[branch].first));
      const auto out = model->forward(tokens.slice(1, 0, -1));
      for (const at::Tensor& gates : out.gates) {
        EXPECT_EQ(gates.select(-1, branch).abs().max().item<double>(), 0);
        EXPECT_GT(gates.select(-1, (branch + 1) % 3).min().item<double>(), 0.1);
        if (gate == GateActivation::kSigmoid) continue;
        EXPECT_NEAR(gates.sum(-1).min().item<double>(), 1, 1e-6);
      }
      next_token_loss(out.logits, tokens).backward();
      int64_t seen = 0;
      for (const auto& item : model->named_parameters()) {
        if (!item.key().ends_with(kOff[branch].second)) continue;
        ++seen;
        EXPECT_EQ(item.value().grad().abs().max().item<double>(), 0) << item.key();
      }
      EXPECT_EQ(seen, 4) << "K and V of two layers";
    }
}

TEST(AttentionVariant, FirstWeightsAreThoseOfTheWholeModel) {
  const auto whole = made(small())->named_parameters();
  for (const char* variant : {"nsa", "dense", "no_compressed", "no_selected", "no_window"}) {
    const ModelConfig config = with_attention(small(), variant);
    for (const auto& item : made(config)->named_parameters()) {
      std::string name = item.key();
      if (const size_t at = name.find(".dense."); at != std::string::npos)
        name.replace(at, 7, ".attention.");
      ASSERT_NE(whole.find(name), nullptr) << name;
      EXPECT_TRUE(at::equal(*whole.find(name), item.value())) << variant << " " << name;
    }
  }
}

/// Token by token the branch is off as well.
TEST(AttentionVariant, DecodingSwitchesOffTheSameBranch) {
  at::manual_seed(1);
  const at::Tensor tokens = at::randint(32, {1, 50}, at::kLong);
  const at::NoGradGuard no_grad;
  at::Tensor before;
  for (const auto& [variant, _] : kOff) {
    Decoder model = made(with_attention(small(), variant));
    const at::Tensor want = model->forward(tokens).logits;
    DecoderCache cache(model, 1, 64);
    cache.prefill(tokens.slice(1, 0, 49), {49});
    const at::Tensor last = cache.step(tokens.slice(1, 49));
    EXPECT_LT((last.select(1, 0) - want.select(1, 49)).abs().max().item<double>(), 1e-4) << variant;
    if (before.defined()) {
      EXPECT_GT((before - want).abs().max().item<double>(), 1e-3) << "another branch is off";
    }
    before = want;
  }
}

TEST(AttentionVariant, IsPartOfTheDescriptionAndUnknownOnesAreRefused) {
  EXPECT_EQ(describe(with_attention(small(), "")), describe(small()));
  EXPECT_EQ(describe(with_attention(with_attention(small(), "no_window"), "nsa")),
            describe(small()));
  EXPECT_THAT(describe(with_attention(small(), "no_selected")), HasSubstr(", without selected"));
  EXPECT_THAT(describe(with_attention(small(), "dense")), HasSubstr("small: dense"));
  try {
    with_attention(small(), "none");
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("attention must be nsa, dense, no_compressed, no_selected "
                                        "or no_window, got \"none\""));
  }
}

}  // namespace
}  // namespace nsa

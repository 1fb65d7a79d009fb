// Text made through the decode cache: the tokens that the whole model gives.
#include "nsa/model/sampling.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nsa/model/attention_variant.h"
#include "nsa/program/input_error.h"

namespace nsa {
namespace {

using ::testing::HasSubstr;

Decoder sampled_model(const std::string& variant = "nsa") {
  at::manual_seed(4);
  ModelConfig config;
  config.name = "small";
  config.vocab = 40;
  config.dim = 24;
  config.num_layers = 2;
  config.mlp_hidden = 16;
  NsaConfig& c = config.attention;
  c.num_heads = 4, c.num_kv_heads = 2, c.qk_head_dim = 8, c.v_head_dim = 6;
  c.block_size = 8, c.block_stride = 4, c.sel_block_size = 8, c.top_n = 3, c.window = 12;
  Decoder model(with_attention(config, variant));
  const at::NoGradGuard no_grad;
  for (at::Tensor& p : model->parameters()) p.mul_(8);  // logits that differ
  model->to(at::kDouble);
  model->compute_type = at::kDouble;
  return model;
}

/// Token by token by forward passes over everything so far.
at::Tensor by_whole_model(Decoder& model, at::Tensor tokens, const Sampling& sampling) {
  const at::NoGradGuard no_grad;
  const int64_t prompt = tokens.numel();
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(sampling.seed);
  for (int64_t i = 0; i < sampling.tokens; ++i) {
    const at::Tensor logits = model->forward(tokens.view({1, -1})).logits[0][prompt + i - 1];
    const at::Tensor next =
        sampling.temperature == 0
            ? logits.argmax().view({1})
            : at::multinomial(at::softmax(logits / sampling.temperature, 0), 1, false, generator);
    tokens = at::cat({tokens, next});
  }
  return tokens.slice(0, prompt);
}

TEST(Sampling, TokensAreThoseOfTheWholeModel) {
  Decoder model = sampled_model();
  for (const int64_t length : {1, 9, 30})
    for (const double temperature : {0.0, 1.0}) {
      const at::Tensor prompt = at::randint(40, {length}, at::kLong);
      const Sampling sampling{.tokens = 40, .temperature = temperature, .seed = 5};
      const at::Tensor made = sample_tokens(model, prompt, sampling);
      EXPECT_TRUE(at::equal(made, by_whole_model(model, prompt, sampling)))
          << length << " " << temperature << ": " << made;
    }
}

TEST(Sampling, TheSeedDecidesTheDraws) {
  const Decoder model = sampled_model();
  const at::Tensor prompt = at::arange(5, at::kLong);
  const auto made = [&](uint64_t seed, double temperature) {
    return sample_tokens(
        model, prompt, {.tokens = 30, .temperature = temperature, .seed = seed, .num_values = 20});
  };
  EXPECT_TRUE(at::equal(made(1, 2), made(1, 2)));
  EXPECT_FALSE(at::equal(made(1, 2), made(2, 2)));
  EXPECT_TRUE(at::equal(made(1, 0), made(2, 0)));
  EXPECT_LT(made(1, 2).max().item<int64_t>(), 20);
}

TEST(Sampling, WhatCannotBeSampledIsNamed) {
  const auto error = [](const std::string& variant, int64_t length, double temperature) {
    try {
      sample_tokens(sampled_model(variant), at::zeros({length}, at::kLong),
                    {.tokens = 1, .temperature = temperature});
    } catch (const InputError& e) {
      return std::string(e.what());
    }
    return std::string("none");
  };
  EXPECT_THAT(error("dense", 3, 0), HasSubstr("which the dense model small does not have"));
  EXPECT_THAT(error("nsa", 0, 0), HasSubstr("at least one token"));
  EXPECT_THAT(error("nsa", 3, -1), HasSubstr("temperature must be >= 0"));
}

}  // namespace
}  // namespace nsa

// Activation checkpointing changes no bit.
#include "nsa/model/recompute.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/paths.h"
#include "nsa/model/blocks/loss.h"
#include "nsa/model/decoder.h"

namespace nsa {
namespace {

TEST(Recompute, GradientsRandomNumbersAndCallsAreThoseOfThePlainCall) {
  const at::Tensor w = at::randn({4, 4}).requires_grad_(true), x = at::randn({3, 4});
  int calls = 0;
  const auto f = [&](const at::Tensor& in) {
    ++calls;
    record_backend("stage", "plain", "plain", "", "", /*strict=*/false);
    return (at::matmul(in, w) * at::rand({3, 4})).tanh();
  };
  at::manual_seed(3);
  const at::Tensor plain_in = x.clone().requires_grad_(true);
  const at::Tensor plain = f(plain_in);
  plain.square().sum().backward();
  const at::Tensor d_w = w.grad().clone(), next = at::rand({2});
  w.mutable_grad() = at::Tensor();

  at::manual_seed(3);
  const at::Tensor in = x.clone().requires_grad_(true);
  const Recomputed again = recomputed(f, in, {w});
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(at::equal(again.y, plain));
  again.y.square().sum().backward();
  EXPECT_EQ(calls, 3);
  EXPECT_TRUE(at::equal(w.grad(), d_w));
  EXPECT_TRUE(at::equal(in.grad(), plain_in.grad()));
  EXPECT_TRUE(at::equal(at::rand({2}), next)) << "the generator's state is unchanged";
  ASSERT_EQ(again.record->rows().size(), 1u);
  EXPECT_EQ(again.record->rows()[0].count, 2);
}

TEST(Recompute, KeepsTheInputAlone) {
  float values[] = {1, 2, 3};
  int freed = 0;
  const at::Tensor x = at::randn({3}).requires_grad_(true);
  const auto f = [&](const at::Tensor& in) {  // a product keeps both factors
    return in * at::from_blob(values, {3}, [&](void*) { ++freed; });
  };
  EXPECT_TRUE(f(x).requires_grad());
  EXPECT_EQ(freed, 1);
  const at::Tensor plain = f(x);
  EXPECT_EQ(freed, 1);
  const Recomputed again = recomputed(f, x, {});
  EXPECT_EQ(freed, 2);
  again.y.sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), at::tensor({1.0f, 2.0f, 3.0f})));
}

struct Pass {
  std::vector<at::Tensor> logits_and_gradients;
  std::vector<RanBackend> ran;
};

Pass train_pass(Decoder& model, const at::Tensor& tokens, bool checkpointing) {
  model->activation_checkpointing = checkpointing;
  model->zero_grad();
  Pass pass;
  for (int micro = 0; micro < 2; ++micro) {  // gradients add up
    const auto out = model->forward(tokens.slice(1, 0, -1));
    next_token_loss(out.logits, tokens).backward();
    pass.logits_and_gradients.push_back(out.logits.detach());
    for (const RunRecordPtr& record : out.records) merge_rows(pass.ran, record->rows());
    for (const at::Tensor& gates : out.gates) pass.logits_and_gradients.push_back(gates.clone());
  }
  for (const at::Tensor& p : model->parameters())
    pass.logits_and_gradients.push_back(p.grad().clone());
  return pass;
}

class RecomputedModel : public ::testing::TestWithParam<std::string> {};

TEST_P(RecomputedModel, HasTheSameBits) {
  at::manual_seed(8);
  const std::filesystem::path configs =
      std::filesystem::path(base::source_dir()) / "configs/models";
  Decoder model(load_model_config(GetParam(), {configs}));
  NsaOptions options;
  options.sel = SelBackend::kPacked;
  options.safe_pack = false;  // without gradients it would take its other variant
  options.strict_asserts = true;
  model->set_attention_options(options);
  const at::Tensor tokens = at::randint(256, {2, 98}, at::kLong);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    model->compute_type = type;
    const Pass plain = train_pass(model, tokens, false), again = train_pass(model, tokens, true);
    ASSERT_EQ(plain.logits_and_gradients.size(), again.logits_and_gradients.size());
    for (size_t i = 0; i < plain.logits_and_gradients.size(); ++i)
      EXPECT_TRUE(at::equal(plain.logits_and_gradients[i], again.logits_and_gradients[i])) << i;
    ASSERT_EQ(plain.ran.size(), again.ran.size());
    for (size_t i = 0; i < plain.ran.size(); ++i) {
      EXPECT_EQ(plain.ran[i].stage, again.ran[i].stage);
      EXPECT_EQ(plain.ran[i].backend, again.ran[i].backend);
      EXPECT_EQ(plain.ran[i].detail, again.ran[i].detail);
      EXPECT_EQ(2 * plain.ran[i].count, again.ran[i].count) << plain.ran[i].stage;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, RecomputedModel, ::testing::Values("tiny_cpu", "tiny_cpu_dense"));

}  // namespace
}  // namespace nsa

// Training with the step as one CUDA graph against training without: the same bits. Ends with 77
// (skipped) where there is no CUDA device.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "nsa/model/input_error.h"
#include "nsa/model/loss.h"
#include "nsa/train/schedule.h"
#include "nsa/train/trainer.h"
#include "nsa/train/training_attention.h"

namespace nsa::train {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSteps = 20, kSeqLen = 256;

/// Attention of m7c_125m, for which the kernels are made, in a model of two narrow layers.
ModelConfig small_config(bool dense) {
  ModelConfig config;
  config.name = "small";
  config.vocab = 256, config.dim = 128, config.num_layers = 2, config.mlp_hidden = 256,
  config.seq_len = kSeqLen;
  NsaConfig& a = config.attention;
  a.num_heads = 12, a.num_kv_heads = 2, a.qk_head_dim = 64, a.v_head_dim = 64;
  a.block_size = 32, a.block_stride = 16, a.sel_block_size = 64, a.top_n = 3, a.num_initial = 1,
  a.num_local = 1, a.window = 64;
  if (dense) config.attention_kind = AttentionKind::kDense;
  return config;
}

struct Trained {
  std::vector<double> losses, norms;
  std::vector<at::Tensor> parameters;
  std::vector<RanBackend> ran;
  std::vector<StepRecord> trace;
  GraphUse how;
};

struct Variant {
  bool dense = false;
  int64_t accum = 1;
  at::ScalarType type = at::kBFloat16;
  LossFunction loss = next_token_loss;
};

Trained train(const std::string& graph, const Variant& variant) {
  const at::Device device("cuda:0");
  TrainOptions options;
  options.steps = kSteps, options.batch = 2, options.accum = variant.accum, options.lr = 3e-3,
  options.warmup = 5, options.cuda_graph = graph;
  at::manual_seed(3);
  Decoder model(small_config(variant.dense));
  model->to(device, at::kFloat);
  model->compute_type = variant.type;
  model->set_attention_options(
      training_attention(SwitchSet::from({}, {}, {}), "auto", device).options);
  const auto tokens = make_synthetic_source(256, 11);
  const Schedule schedule{options.lr, options.min_lr, options.warmup, options.steps};
  TrainerParts parts;
  parts.model = model;
  parts.tokens = tokens.get();
  parts.loss = variant.loss;
  parts.learning_rate = [schedule](int64_t k) { return schedule.at(k); };
  Trainer trainer(std::move(parts), options, kSeqLen, device);
  Trained result;
  for (int64_t i = 0; i < kSteps; ++i) {
    result.trace.push_back(trainer.step(/*wait_each=*/false));
    result.losses.push_back(result.trace.back().loss);
    result.norms.push_back(result.trace.back().grad_norm);
  }
  for (const at::Tensor& p : model->parameters()) result.parameters.push_back(p.detach().clone());
  result.ran = trainer.ran();
  result.how = trainer.graph_use();
  return result;
}

/// -1, which no loss and no norm is, in place of NaN.
std::vector<double> without_nan(std::vector<double> values) {
  for (double& value : values)
    if (std::isnan(value)) value = -1;
  return values;
}

void expect_same_bits(const Trained& graph, const Trained& plain) {
  EXPECT_EQ(without_nan(graph.losses), without_nan(plain.losses));
  EXPECT_EQ(without_nan(graph.norms), without_nan(plain.norms));
  ASSERT_EQ(graph.parameters.size(), plain.parameters.size());
  for (size_t i = 0; i < plain.parameters.size(); ++i)
    EXPECT_TRUE(at::equal(graph.parameters[i], plain.parameters[i])) << "parameter " << i;
  // What a launch ran counts as often as it ran.
  ASSERT_EQ(graph.ran.size(), plain.ran.size());
  for (size_t i = 0; i < plain.ran.size(); ++i) {
    EXPECT_EQ(graph.ran[i].stage, plain.ran[i].stage);
    EXPECT_EQ(graph.ran[i].backend, plain.ran[i].backend);
    EXPECT_EQ(graph.ran[i].count, plain.ran[i].count) << plain.ran[i].stage;
  }
}

/// The steps behind the first three were launches; every step had tokens of its own.
void expect_launches(const Trained& graph) {
  for (int64_t i = 0; i < kSteps; ++i)
    EXPECT_EQ(std::isnan(graph.trace[static_cast<size_t>(i)].forward_ms), i >= 3)
        << "step " << i + 1;
  for (size_t i = 1; i < graph.losses.size(); ++i) {
    EXPECT_NE(graph.losses[i], graph.losses[i - 1]);
    EXPECT_TRUE(std::isfinite(graph.losses[i]) && graph.norms[i] > 0);
  }
  EXPECT_GE(graph.trace.back().peak_mib, graph.trace.front().peak_mib * 0.5);
}

TEST(StepGraphOnCuda, TwentyStepsHaveTheBitsOfStepsWithoutIt) {
  for (const Variant& variant : {Variant{}, Variant{.accum = 2}, Variant{.dense = true}}) {
    SCOPED_TRACE(std::string(variant.dense ? "dense" : "nsa") + " accum " +
                 std::to_string(variant.accum));
    const Trained graph = train("on", variant);
    expect_launches(graph);
    expect_same_bits(graph, train("off", variant));
  }
}

std::string refusal_of(const Variant& variant) {
  try {
    train("on", variant);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(StepGraphOnCuda, AutoIsAGraphWhereNothingStandsAgainstIt) {
  const Trained automatic = train("auto", {});
  expect_launches(automatic);
  EXPECT_TRUE(automatic.how.captured);
  EXPECT_EQ(automatic.how.reason, "");
  const Variant plain_operators{.type = at::kFloat};
  const Trained given_up = train("auto", plain_operators), off = train("off", plain_operators);
  EXPECT_FALSE(given_up.how.captured);
  EXPECT_THAT(given_up.how.reason, HasSubstr("which reads values on the host"));
  EXPECT_FALSE(std::isnan(given_up.trace.back().forward_ms));
  EXPECT_EQ(off.how.reason, "");
  expect_same_bits(given_up, off);
}

/// fp32 runs the plain operators, which read values on the host.
TEST(StepGraphOnCuda, AStepThatCannotBeCapturedIsRefusedWithTheReason) {
  EXPECT_THAT(refusal_of({.type = at::kFloat}),
              ::testing::AllOf(HasSubstr("no CUDA graph of the step: "),
                               HasSubstr("which reads values on the host"),
                               HasSubstr("train with cuda_graph off")));
  EXPECT_EQ(train("off", {.type = at::kFloat}).losses.size(), size_t{kSteps});
}

/// Infinite where the first token is small; decided on the device.
at::Tensor sometimes_infinite(const at::Tensor& logits, const at::Tensor& tokens) {
  return next_token_loss(logits, tokens) / tokens.select(0, 0).select(0, 0).ge(100).to(at::kFloat);
}

TEST(StepGraphOnCuda, StepsThatAreNotFiniteChangeNoWeight) {
  const Variant variant{.loss = sometimes_infinite};
  const Trained graph = train("on", variant);
  const auto skipped = std::count_if(graph.norms.begin() + 3, graph.norms.end(),
                                     [](double norm) { return !std::isfinite(norm); });
  EXPECT_GT(skipped, 0);
  EXPECT_LT(skipped, kSteps - 3);
  for (const at::Tensor& p : graph.parameters) EXPECT_TRUE(p.isfinite().all().item<bool>());
  expect_same_bits(graph, train("off", variant));
}

at::Tensor read_on_host(const at::Tensor& logits, const at::Tensor& tokens) {
  at::Tensor loss = next_token_loss(logits, tokens);
  return loss.item<double>() > 0 ? loss : -loss;
}

/// The last test: a capture that broke off is the end of a run, and of this program.
TEST(StepGraphOnCuda, ZAReadOnTheHostDuringTheCaptureIsAClearError) {
  EXPECT_THAT(refusal_of({.loss = read_on_host}),
              ::testing::AllOf(HasSubstr("no CUDA graph of the step: "),
                               HasSubstr("train with cuda_graph off")));
}

}  // namespace
}  // namespace nsa::train

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (!at::hasCUDA()) {
    std::puts("no CUDA device: not run");
    return 77;
  }
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  return RUN_ALL_TESTS();
}

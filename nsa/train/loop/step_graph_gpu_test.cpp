// Training with the step as one CUDA graph against training without: the same bits. Ends with 77
// (skipped) where there is no CUDA device.
#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "nsa/model/blocks/loss.h"
#include "nsa/program/input_error.h"
#include "nsa/train/checkpoint/checkpoint_store.h"
#include "nsa/train/loop/schedule.h"
#include "nsa/train/loop/trainer.h"
#include "nsa/train/loop/training_attention.h"
#include "nsa/train/ranks/rank_group.h"
#include "nsa/train/tasks/recall.h"
#include "nsa/train/tasks/task_corpus.h"

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
  size_t buckets = 0;
  Communication sums;
};

struct Variant {
  bool dense = false;
  int64_t accum = 1;
  at::ScalarType type = at::kBFloat16;
  LossFunction loss = next_token_loss;
  bool grouped = false;  ///< as the one rank of a group: gradients travel in buckets
  bool task = false;     ///< rows with answers, which alone are targets
};

/// Rows of recall from a folder that is removed again: the source keeps its files open.
std::unique_ptr<TokenSource> task_rows() {
  const auto dir =
      std::filesystem::temp_directory_path() / ("step_graph_task_" + std::to_string(getpid()));
  const auto task = make_recall({.seq_len = kSeqLen, .pairs = 4, .vocab = 32, .gap = 16});
  write_task_corpus(*task, {.train = 200, .val = 1}, dir, "recall");
  auto source = open_corpus_source(dir, "recall", 11, kSeqLen + 1, 2);
  std::error_code ignored;
  remove_folder(dir, ignored);
  return source;
}

std::unique_ptr<RankGroup> group_of_one(at::Device device) {
  constexpr int kPort = 29871;
  return std::make_unique<RankGroup>(
      RankPlace{.rank = 0, .world = 1, .local_rank = 0, .host = "127.0.0.1", .port = kPort}, device,
      std::chrono::seconds(30));
}

Trained train(const std::string& graph, const Variant& variant) {
  const at::Device device("cuda:0");
  const auto group = variant.grouped ? group_of_one(device) : nullptr;
  CollectiveLog collectives;
  TrainOptions options;
  options.steps = kSteps, options.batch = 2, options.accum = variant.accum, options.lr = 3e-3,
  options.warmup = 5, options.cuda_graph = graph;
  at::manual_seed(3);
  Decoder model(small_config(variant.dense));
  model->to(device, at::kFloat);
  model->compute_type = variant.type;
  model->set_attention_options(
      training_attention(SwitchSet::from({}, {}, {}), "auto", device).options);
  const auto tokens = variant.task ? task_rows() : make_synthetic_source(256, 11);
  const Schedule schedule{options.lr, options.min_lr, options.warmup, options.steps};
  TrainerParts parts;
  parts.model = model;
  parts.tokens = tokens.get();
  parts.loss = variant.loss;
  parts.learning_rate = [schedule](int64_t k) { return schedule.at(k); };
  parts.ranks = group.get();
  if (group) parts.collectives = &collectives;
  options.reducer.bucket_mib = 1;  // 1.7 MiB of gradients
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
  result.buckets = trainer.bucket_bytes().size();
  result.sums = trainer.communication();
  trainer.finish();
  if (group) group->leave();
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

TEST(StepGraphOnCuda, ItsStreamIsNoneOfTheLibrarysPool) {
  const at::Device device("cuda:0");
  StepGraph graph(device, {1, 1, 8});
  const c10::impl::VirtualGuardImpl streams(at::kCUDA);
  for (int i = 0; i < 64; ++i)
    EXPECT_NE(streams.getStreamFromGlobalPool(device), graph.follow()) << "stream " << i;
}

TEST(StepGraphOnCuda, TwentyStepsHaveTheBitsOfStepsWithoutIt) {
  for (const Variant& variant : {Variant{}, Variant{.accum = 2}, Variant{.dense = true},
                                 Variant{.task = true}, Variant{.accum = 2, .task = true}}) {
    SCOPED_TRACE(std::string(variant.dense ? "dense" : "nsa") + " accum " +
                 std::to_string(variant.accum) + (variant.task ? " task" : ""));
    const Trained graph = train("on", variant);
    expect_launches(graph);
    expect_same_bits(graph, train("off", variant));
  }
}

/// Each bucket is sent between two launches, and the update waits for it: with the same numbers in
/// another place every time, a sum that came too late or not at all would have other bits. A group
/// of one trains as nobody's rank does.
TEST(StepGraphOnCuda, StepsOfAGroupAreCutWhereBucketsAreSentWithTheSameBits) {
  for (const int64_t accum : {1, 2}) {
    SCOPED_TRACE("accum " + std::to_string(accum));
    const Variant grouped{.accum = accum, .grouped = true};
    const Trained graph = train("on", grouped), plain = train("off", grouped);
    expect_launches(graph);
    expect_same_bits(graph, plain);
    expect_same_bits(plain, train("off", {.accum = accum}));
    EXPECT_GE(graph.buckets, 2u);
    EXPECT_EQ(graph.buckets, plain.buckets);
    EXPECT_GT(graph.sums.busy_ms, 0);
  }
}

TEST(StepGraphOnCuda, WorkBetweenTwoGraphsRunsAtEveryLaunch) {
  const at::Device device("cuda:0");
  StepGraph graph(device, {1, 1, 1});
  const at::Tensor number = at::ones({1}, at::TensorOptions(device).dtype(at::kDouble));
  for (int i = 0; i < 4; ++i) graph.begin_step();
  const c10::StreamGuard stream(graph.follow());
  double added = 0;
  graph.capture(
      [&] {
        number.mul_(2);
        graph.cut([&] { number.add_(added); });
        number.mul_(10);
        graph.cut([&] { number.sub_(1); });
        StepTensors out;
        out.loss = number * 3;
        return out;
      },
      {});
  EXPECT_EQ(number.item<double>(), 1);  // nothing ran so far
  added = 5;
  EXPECT_EQ(graph.replay().loss.item<double>(), 3 * ((1 * 2 + 5) * 10 - 1));
  added = 7;
  EXPECT_EQ(graph.replay().loss.item<double>(), 3 * ((69 * 2 + 7) * 10 - 1));
  graph.release();
}

std::string refusal_of(const Variant& variant) {
  try {
    train("on", variant);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(StepGraphOnCuda, AutoIsAGraphWithoutObstacles) {
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
TEST(StepGraphOnCuda, ZHostReadDuringCaptureIsAnError) {
  EXPECT_THAT(refusal_of({.loss = read_on_host}),
              ::testing::AllOf(HasSubstr("no CUDA graph of the step: "),
                               HasSubstr("train with cuda_graph off")));
}

}  // namespace
}  // namespace nsa::train

// Predicted and measured memory of a step, and the finding when an allocation fails.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/paths.h"
#include "nsa/model/blocks/loss.h"
#include "nsa/train/loop/trainer.h"
#include "nsa/train/loop/training_attention.h"
#include "nsa/train/memory/memory_plan.h"
#include "nsa/train/memory/memory_report.h"
#include "nsa/train/memory/tensor_memory.h"

namespace nsa::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

ModelConfig shipped(const std::string& name) {
  return load_model_config(name, {std::filesystem::path(base::source_dir()) / "configs/models"});
}

/// A small model with the choices of a shipped one.
ModelConfig small_of(const std::string& name) {
  ModelConfig config = shipped(name);
  config.vocab = 256, config.dim = 64, config.num_layers = 2, config.mlp_hidden = 160;
  config.attention.num_heads = 4, config.attention.num_kv_heads = 2;
  config.attention.qk_head_dim = config.attention.v_head_dim = 16;
  return config;
}

double part(const MemoryPlan& plan, const std::string& name) {
  for (const MemoryPart& each : plan.parts)
    if (each.name == name) return each.mib;
  return 0;
}

TEST(CountParameters, IsThatOfTheModel) {
  for (const char* name : {"tiny_cpu", "tiny_cpu_dense", "nsa_1b"}) {
    ModelConfig config = small_of(name);
    for (const Phi phi : {Phi::kMean, Phi::kConv, Phi::kMlp}) {
      config.attention.phi = phi;
      EXPECT_EQ(count_parameters(config), Decoder(config)->num_parameters()) << name;
    }
  }
}

TEST(CountParameters, OfNsa1b) {
  const int64_t layer = 2048 * (2 * 2048 + 2 * 128 + 96 + 3 * 8192 + 2);
  EXPECT_EQ(count_parameters(shipped("nsa_1b")), 16 * layer + 128256 * 2048 + 2048);
}

TEST(PlanMemory, ByHand) {
  // m7c_125m at B 2, S 2048 in bf16: 4096 tokens, 12 layers.
  const ModelConfig m7c = shipped("m7c_125m");
  const StepShape shape{.batch = 2, .accum = 1, .seq_len = 2048, .value_bytes = 2};
  const MemoryPlan plan = plan_memory(m7c, shape);
  constexpr double kMib = 1 << 20;
  const double parameters = static_cast<double>(count_parameters(m7c)) * 4 / kMib;
  EXPECT_DOUBLE_EQ(part(plan, "parameters"), parameters);
  EXPECT_DOUBLE_EQ(part(plan, "moments"), 2 * parameters);
  EXPECT_DOUBLE_EQ(part(plan, "MLP"), 12 * 4096.0 * 4 * 1920 * 2 / kMib);
  // The output in bf16 and fp32, its lse, and keys and values of 2 heads.
  EXPECT_DOUBLE_EQ(part(plan, "window branch"),
                   12 * 4096.0 * (768 * 6 + 4 * 12 + 2 * 128 * 2) / kMib);
  EXPECT_DOUBLE_EQ(part(plan, "logits and loss"), 4096.0 * 256 * 12 / kMib);
  EXPECT_EQ(part(plan, "gradients"), 0) << "they come while activations go";
  StepShape ranks = shape;
  ranks.ranks = ranks.shard_ranks = 2, ranks.sharding = Sharding::kOptimizer;
  EXPECT_DOUBLE_EQ(part(plan_memory(m7c, ranks), "gradients"), parameters);
  EXPECT_DOUBLE_EQ(part(plan_memory(m7c, ranks), "moments"), parameters);
}

TEST(PlanMemory, ShardedByHand) {
  const ModelConfig m7c = shipped("m7c_125m");
  const StepShape shape{.batch = 2,
                        .seq_len = 2048,
                        .ranks = 4,
                        .sharding = Sharding::kFull,
                        .shard_ranks = 4,
                        .value_bytes = 2};
  const MemoryPlan plan = plan_memory(m7c, shape);
  constexpr double kMib = 1 << 20;
  const double parameters = static_cast<double>(count_parameters(m7c)) * 4 / kMib;
  const double layer = static_cast<double>(layer_parameters(m7c)) * 4 / kMib;
  EXPECT_DOUBLE_EQ(part(plan, "parameters"), parameters / 4);
  EXPECT_DOUBLE_EQ(part(plan, "moments"), parameters / 2);
  EXPECT_EQ(part(plan, "weights in the compute type"), 0) << "made again in the backward pass";
  EXPECT_NEAR(part(plan, "gathered parameters"), layer + 257 * 768 * 4 / kMib, 1e-9);
  EXPECT_EQ(part(plan, "gradients"), 0) << "activations are more, and go while they come";
  StepShape small = shape;
  small.batch = 1, small.seq_len = 64;
  EXPECT_DOUBLE_EQ(part(plan_memory(m7c, small), "gradients"), parameters / 4);
  EXPECT_DOUBLE_EQ(part(plan_memory(m7c, small), "a layer on its way"), 2 * layer);
  small.shard_ranks = 1;
  EXPECT_DOUBLE_EQ(part(plan_memory(m7c, small), "parameters"), parameters) << "nothing to divide";
}

TEST(PlanMemory, OfKernelsByHand) {
  const ModelConfig m7c = shipped("m7c_125m");
  const StepShape shape{.batch = 2, .accum = 1, .seq_len = 2048, .value_bytes = 2, .kernels = true};
  const MemoryPlan plan = plan_memory(m7c, shape);
  constexpr double kLayers = 12 * 4096.0 / (1 << 20);
  EXPECT_DOUBLE_EQ(part(plan, "norms and residual stream"), kLayers * 2 * (768 * 2 + 4));
  EXPECT_DOUBLE_EQ(part(plan, "MLP"), kLayers * 2 * 1920 * 2);
  // The projection (q of 12 heads, six tensors of 2), q and two of keys rotated, o.
  EXPECT_DOUBLE_EQ(part(plan, "queries and attention output"),
                   kLayers * 2 * ((768 + 6 * 128) + 768 + 2 * 128 + 768));
  EXPECT_DOUBLE_EQ(part(plan, "compressed branch"),
                   kLayers * (768 * 2 + 12 * 4 + 2 * 128 * 2 / 16.0));
  // Two outputs of branches are kept for three.
  EXPECT_DOUBLE_EQ(part(plan, "selected branch"), kLayers * (12 * 4 + 2 * 16 * 8));
  EXPECT_DOUBLE_EQ(part(plan, "window branch"), kLayers * (768 * 2 + 12 * 4));
  EXPECT_DOUBLE_EQ(part(plan, "gates"), kLayers * 2 * 2 * 3 * 4);  // logits and gates
  // Gradients of the MLP's three products and their input, two of weights in bf16; the logits and
  // the last norm's tensors are gone.
  EXPECT_DOUBLE_EQ(
      part(plan, "backward pass of the last layer"),
      (4096.0 * (3 * 1920 + 768) * 2 + 2 * 1920 * 768 * 2 - 4096.0 * 2 * 768 * 2) / (1 << 20));
  EXPECT_EQ(part(plan, "logits and loss"), 0);
  ModelConfig as_given = m7c;
  as_given.attention.gate = GateActivation::kNone;
  EXPECT_DOUBLE_EQ(part(plan_memory(as_given, shape), "selected branch"),
                   kLayers * (768 * 2 + 12 * 4 + 2 * 16 * 8))
      << "gates that may be 0 keep all three";
  ModelConfig halves = m7c;
  halves.attention.rope_pairs = RopePairs::kHalfSplit;
  EXPECT_DOUBLE_EQ(part(plan_memory(halves, shape), "selected branch"),
                   kLayers * (768 * 2 + 12 * 4 + 2 * 16 * 8))
      << "no one call rotates halves";
  EXPECT_DOUBLE_EQ(part(plan_memory(halves, shape), "queries and attention output"),
                   kLayers * 2 * ((768 + 6 * 128) + 768 + 4 * 128 + 768));
}

TEST(PlanMemory, WorkspacesByHand) {
  const ModelConfig m7c = shipped("m7c_125m");
  StepShape shape{.batch = 2, .accum = 1, .seq_len = 2048, .value_bytes = 2, .kernels = true};
  shape.products_workspace = 64 << 20;
  shape.selected_workspace_per_token = 100000;
  const MemoryPlan plan = plan_memory(m7c, shape);
  EXPECT_DOUBLE_EQ(part(plan, "workspaces of matrix products"), 64);
  // A workspace of 391 MiB makes the attention of the last layer its fullest point: gradients of
  // the projection (q of 12 heads, six tensors of 2), of o, of the stream and of q, three pairs of
  // statistics and three branches' keys and values; two tensors of the last norm, a sum, gate and
  // up, o and two outputs are gone; gradients of the MLP's weights are there.
  const double come = 2 * (1536 + 768 + 768 + 768 + 3 * 256) + 12 * 24 + 100000;
  const double gone = 2 * (3 * 768 + 2 * 1920 + 3 * 768);
  EXPECT_DOUBLE_EQ(part(plan, "backward pass of the last layer"),
                   (4096 * (come - gone) + 3 * 768 * 1920 * 4) / (1 << 20));
  shape.accum = 4;
  EXPECT_DOUBLE_EQ(part(plan_memory(m7c, shape), "backward pass of the last layer"),
                   4096 * (come - gone) / (1 << 20))
      << "gradients are kept, and counted as such";
  shape.kernels = false;
  EXPECT_EQ(part(plan_memory(m7c, shape), "backward pass of the last layer"), 0) << "not known";
  EXPECT_DOUBLE_EQ(part(plan_memory(m7c, shape), "logits and loss"), 4096.0 * 256 * 12 / (1 << 20));
}

TEST(PlanMemory, ACheckpointedLayerIsMadeAgainBehindTheLogits) {
  ModelConfig m7c = shipped("m7c_125m");
  StepShape shape{.batch = 16, .seq_len = 2048, .value_bytes = 2, .kernels = true};
  shape.activation_checkpointing = true;
  const MemoryPlan layer = plan_memory(m7c, shape);
  EXPECT_DOUBLE_EQ(part(layer, "MLP"), 32768.0 * 2 * 1920 * 2 / (1 << 20));
  EXPECT_EQ(part(layer, "logits and loss"), 0);
  m7c.vocab = 128256;
  const MemoryPlan logits = plan_memory(m7c, shape);
  EXPECT_EQ(part(logits, "MLP"), 0);
  EXPECT_EQ(part(logits, "backward pass of the last layer"), 0);
  EXPECT_DOUBLE_EQ(part(logits, "logits and loss"), 32768.0 * 128256 * 12 / (1 << 20));
}

TEST(PlanMemory, OfCheckpointedLayersTheFirstHasTheOthersGradients) {
  ModelConfig m7c = shipped("m7c_125m");
  StepShape shape{.batch = 4, .seq_len = 2048, .value_bytes = 2, .kernels = true};
  shape.activation_checkpointing = true;
  // 8,192 tokens: an input of a layer is 12 MiB, its gradients are 23.5.
  const double gradients = static_cast<double>(layer_parameters(m7c)) * 4 / (1 << 20);
  ASSERT_GT(gradients, 12);
  MemoryPlan plan = plan_memory(m7c, shape);
  EXPECT_DOUBLE_EQ(part(plan, "gradients"), 11 * gradients);
  EXPECT_DOUBLE_EQ(part(plan, "inputs of the layers"), 12);
  shape.batch = 16;
  plan = plan_memory(m7c, shape);
  EXPECT_EQ(part(plan, "gradients"), 0) << "inputs are more";
  EXPECT_DOUBLE_EQ(part(plan, "inputs of the layers"), 12 * 48);
}

TEST(FittingChange, TakesTheFirstThatFits) {
  const ModelConfig m7c = shipped("m7c_125m");
  const StepShape shape{.batch = 16, .accum = 1, .seq_len = 2048, .value_bytes = 2};
  const double now = plan_memory(m7c, shape).total_mib();
  EXPECT_EQ(fitting_change(m7c, shape, 0.9 * now, 1).text, "activation_checkpointing=true");
  EXPECT_LT(fitting_change(m7c, shape, 0.9 * now, 1).predicted_mib, 0.9 * now);
  StepShape checkpointed = shape;
  checkpointed.activation_checkpointing = true;
  const double less = plan_memory(m7c, checkpointed).total_mib();
  EXPECT_EQ(fitting_change(m7c, shape, 0.95 * less, 1).text,
            "activation_checkpointing=true batch=8 accum=2");
  EXPECT_EQ(fitting_change(m7c, checkpointed, 0.95 * less, 1).text, "batch=8 accum=2");
  EXPECT_EQ(fitting_change(m7c, shape, 100, 1).text, "") << "the parameters alone are 285 MiB";
  StepShape ranks{.batch = 1, .seq_len = 64, .ranks = 4, .shard_ranks = 4, .value_bytes = 2};
  EXPECT_EQ(fitting_change(m7c, ranks, 0.5 * plan_memory(m7c, ranks).total_mib(), 1).text,
            "shard=full");
  const StepShape one{.batch = 1, .accum = 1, .seq_len = 1 << 20, .value_bytes = 2};
  EXPECT_THAT(fitting_change(m7c, one, 20000, 1).text,
              HasSubstr("activation_checkpointing=true seq_len="));
  EXPECT_EQ(fitting_change(m7c, shape, 0.9 * now, 1.01).predicted_mib,
            1.01 * fitting_change(m7c, shape, 0.9 * now, 1).predicted_mib);
}

/// Peak of the tensors of a second step of `config`, in MiB.
double measured_mib(const ModelConfig& config, const TrainOptions& options, int64_t seq_len,
                    at::ScalarType type, bool cpu_kernels) {
  at::set_num_threads(1);
  const auto tokens = make_synthetic_source(config.vocab, 1);
  TrainerParts parts;
  parts.model = Decoder(config);
  parts.model->compute_type = type;
  parts.model->activation_checkpointing = options.activation_checkpointing;
  if (cpu_kernels)
    parts.model->set_attention_options(training_attention(SwitchSet(), "auto", at::kCPU).options);
  parts.tokens = tokens.get();
  parts.loss = next_token_loss;
  parts.learning_rate = [](int64_t) { return 1e-3; };
  Trainer trainer(parts, options, seq_len, at::kCPU);
  trainer.step(false);
  reset_tensor_peak(at::kCPU);
  trainer.step(false);
  return tensor_peak_mib(at::kCPU);
}

/// The formula against measured memory on a CPU, whose operators keep other tensors than a GPU's.
/// It is a lower bound, as a step whose prediction does not fit is refused.
TEST(PlanMemory, IsALowerBoundNearTheMeasuredMemoryOfAStep) {
  watch_tensor_memory(at::kCPU, 0);
  for (const std::string name : {"tiny_cpu", "tiny_cpu_dense", "nsa_1b"}) {
    ModelConfig config = small_of(name);
    config.dim = 128, config.mlp_hidden = 320, config.num_layers = 4;
    for (const bool checkpointing : {false, true}) {
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        TrainOptions options;
        options.batch = 4, options.activation_checkpointing = checkpointing;
        const double predicted =
            plan_memory(config, {.batch = 4,
                                 .seq_len = 256,
                                 .activation_checkpointing = checkpointing,
                                 .value_bytes = static_cast<int64_t>(c10::elementSize(type))})
                .total_mib();
        for (const bool kernels : {false, true}) {
          const double ratio = measured_mib(config, options, 256, type, kernels) / predicted;
          EXPECT_TRUE(ratio > 1 && ratio < 1.6)
              << name << " " << type << " checkpointing " << checkpointing << " kernels " << kernels
              << ": " << ratio << " of the " << predicted << " MiB predicted";
          RecordProperty(name + "." + c10::toString(type) + (checkpointing ? ".checkpointed" : "") +
                             (kernels ? ".kernels" : ""),
                         std::to_string(ratio));
        }
      }
    }
  }
}

TEST(TensorMemory, FailsBeyondTheLimitAndReportsHeldMemory) {
  watch_tensor_memory(at::kCPU, 0);
  reset_tensor_peak(at::kCPU);
  const double before = tensor_peak_mib(at::kCPU);
  watch_tensor_memory(at::kCPU, before + 8);
  const at::Tensor kept = at::zeros({1 << 20}), small = at::zeros({1 << 18});
  EXPECT_NEAR(tensor_peak_mib(at::kCPU), before + 5, 0.01);
  EXPECT_FALSE(last_allocation_failure());
  EXPECT_THROW(at::zeros({1 << 20}), c10::OutOfMemoryError);
  const auto failure = last_allocation_failure();
  ASSERT_TRUE(failure);
  EXPECT_DOUBLE_EQ(failure->asked_mib, 4);
  EXPECT_NEAR(failure->in_use_mib, before + 5, 0.01);
  EXPECT_NEAR(failure->capacity_mib, before + 8, 0.01);
  EXPECT_DOUBLE_EQ(failure->largest_mib.at(0), 4);
  EXPECT_DOUBLE_EQ(failure->largest_mib.at(1), 1);
  watch_tensor_memory(at::kCPU, 0);
  EXPECT_EQ(at::zeros({1 << 20}).numel(), 1 << 20);
}

TEST(OomFinding, NamesPredictionMeasurementAndRemedy) {
  const ModelConfig m7c = shipped("m7c_125m");
  const StepShape shape{.batch = 16, .accum = 1, .seq_len = 2048, .value_bytes = 2};
  AllocationFailure failure{.asked_mib = 512, .in_use_mib = 5000, .capacity_mib = 8000};
  failure.largest_mib = {640, 320};
  const Finding finding = oom_finding(m7c, shape, failure, "");
  EXPECT_EQ(finding.code, "OOM");
  EXPECT_THAT(finding.symptom,
              AllOf(HasSubstr("predicted: "), HasSubstr("MLP 5760"),
                    HasSubstr("measured: 5000 MiB in use of 8000 when 512 MiB more were asked "
                              "for; largest allocations: 640 320 MiB")));
  EXPECT_THAT(finding.action, HasSubstr("activation_checkpointing=true is predicted to fit with"));
  EXPECT_THAT(oom_finding(m7c, shape, std::nullopt, "CUDA out of memory").symptom,
              HasSubstr("CUDA out of memory"));
}

}  // namespace
}  // namespace nsa::train

#pragma once
#include <ATen/Parallel.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "nsa/model/blocks/loss.h"
#include "nsa/train/loop/schedule.h"
#include "nsa/train/loop/trainer.h"

/// Models small enough to train in a second, for tests of the loop.
namespace nsa::train {

inline ModelConfig small_config(int64_t vocab) {
  ModelConfig config;
  config.name = "small";
  config.vocab = vocab, config.dim = 32, config.num_layers = 2, config.mlp_hidden = 48,
  config.seq_len = 32;
  config.attention = tiny_cpu();
  config.attention.num_heads = 2, config.attention.num_kv_heads = 1;
  config.attention.window = 16;
  return config;
}

inline TrainOptions small_options(int64_t steps) {
  TrainOptions options;
  options.steps = steps, options.batch = 4, options.lr = 1e-2, options.warmup = 5;
  return options;
}

/// A small model and what trains it.
struct Rig {
  Decoder model{nullptr};
  std::unique_ptr<Trainer> trainer;
};

inline Rig make_rig(const TrainOptions& options, const TokenSource& tokens, int64_t vocab,
                    LossFunction loss = next_token_loss, at::ScalarType type = at::kFloat,
                    std::function<double(int64_t)> learning_rate = {}) {
  at::set_num_threads(1);  // a second one only waits for the first with tensors this small
  at::manual_seed(options.seed);
  Decoder model(small_config(vocab));
  model->to(type);
  model->compute_type = type;
  const Schedule schedule{options.lr, options.min_lr, options.warmup, options.steps};
  TrainerParts parts;
  parts.model = model;
  parts.tokens = &tokens;
  parts.loss = std::move(loss);
  parts.learning_rate = [schedule](int64_t k) { return schedule.at(k); };
  if (learning_rate) parts.learning_rate = std::move(learning_rate);
  return {model, std::make_unique<Trainer>(std::move(parts), options, 32, at::kCPU)};
}

inline std::vector<StepRecord> run_all(Trainer& trainer, int64_t steps) {
  std::vector<StepRecord> trace;
  for (int64_t i = 0; i < steps; ++i) trace.push_back(trainer.step(false));
  return trace;
}

}  // namespace nsa::train

#include "suites/phases/training_step.h"

#include <ATen/ATen.h>

#include "nsa/model/input_error.h"
#include "nsa/model/loss.h"
#include "suites/phases/attention_under_test.h"

namespace suites {
namespace {

constexpr int64_t kSyncsOfP09 = 2000;
constexpr double kLearningRate = 1e-4;

nsa::ModelConfig load_model(const Args& args) {
  try {
    return nsa::load_model_config(args.get_text("model", "m7c_125m"), nsa::model_config_folders());
  } catch (const nsa::InputError& error) {
    throw ConfigError("args.model: " + std::string(error.what()));
  }
}

/// Reads elements of the logits one at a time.
at::Tensor host_bound_loss(const at::Tensor& logits, const at::Tensor& tokens) {
  const at::Tensor flat = logits.detach().flatten();
  double sum = 0;
  for (int64_t i = 0; i < kSyncsOfP09; ++i) sum += flat[i % flat.numel()].item<double>();
  return nsa::next_token_loss(logits, tokens) + 0 * sum;
}

nsa::train::LossFunction loss_under_test(const Args& args) {
  const std::string fault = args.get_text("fault", "");
  if (fault == "P09") return host_bound_loss;
  return nsa::next_token_loss;
}

}  // namespace

double TrainingStep::run_ms() { return trainer->step(/*wait_each=*/false).step_ms; }

TrainingStep make_training_step(const PhaseCase& one, int64_t seq_len) {
  TrainingStep step;
  step.model = load_model(one.args);
  step.options.batch = one.args.get_int("B", 1, 1);
  step.options.accum = one.args.get_int("accum", 4, 1);
  step.options.data = "synthetic";
  const int64_t asked = one.args.get_int("S", 0, 0);
  step.seq_len = seq_len > 0 ? seq_len : asked > 0 ? asked : step.model.seq_len;
  step.type = input_type(one);
  at::manual_seed(one.seed());
  nsa::Decoder model(step.model);
  model->to(one.device, step.type == at::kDouble ? at::kDouble : at::kFloat);
  model->compute_type = step.type;
  model->set_attention_options(one.options);
  step.tokens = nsa::train::make_synthetic_source(step.model.vocab, one.seed());
  step.trainer = std::make_unique<nsa::train::Trainer>(
      nsa::train::TrainerParts{model, step.tokens.get(), loss_under_test(one.args),
                               [](int64_t) { return kLearningRate; }},
      step.options, step.seq_len, one.device);
  return step;
}

}  // namespace suites

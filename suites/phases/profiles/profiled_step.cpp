#include "suites/phases/profiles/profiled_step.h"

#include <ATen/ATen.h>

#include <chrono>
#include <cmath>

#include "nsa/diagnostics/nvtx_range.h"
#include "nsa/model/blocks/loss.h"
#include "nsa/program/input_error.h"
#include "nsa/train/loop/trainer.h"
#include "nsa/train/loop/training_attention.h"
#include "nsa/train/loop/training_model.h"
#include "nsa/train/record/judge.h"
#include "suites/conformance/convert.h"
#include "suites/instrument/event_timer.h"
#include "suites/phases/attention_case.h"
#include "suites/phases/attention_under_test.h"
#include "suites/phases/profiles/step_work.h"

namespace suites {
namespace {

constexpr int64_t kReadsOfP09 = 2000;
constexpr double kProfiledLearningRate = 1e-4;

nsa::ModelConfig load_model(const Args& args) {
  try {
    return nsa::load_model_config(args.get_text("model", "m7c_125m"), nsa::model_config_folders());
  } catch (const nsa::InputError& error) {
    throw ConfigError("args.model: " + std::string(error.what()));
  }
}

int64_t length_of(const Args& args, const nsa::ModelConfig& model, int64_t seq_len) {
  if (seq_len > 0) return seq_len;
  const int64_t asked = args.get_int("S", 0, 0);
  return asked > 0 ? asked : model.seq_len;
}

/// What a training run with the same switches would ask for, unless a backend is named.
nsa::train::TrainingAttention attention_asked(const PhaseCase& one) {
  const std::string backend = one.args.get_text("backend", "auto");
  if (backend.empty() || backend == "auto" || backend == "switches") {
    auto asked = nsa::train::training_attention(nsa::SwitchSet::from_environment(one.in.switches),
                                                backend.empty() ? "auto" : backend, one.device);
    asked.options.keep_scores = false;
    return asked;
  }
  nsa::NsaOptions options = one.options;
  options.keep_scores = false;
  try {
    options.sel = nsa::parse_sel_backend(backend);
  } catch (const std::invalid_argument& error) {
    throw ConfigError("args.backend: " + std::string(error.what()));
  }
  if (options.sel == nsa::SelBackend::kFused)
    options.cmp = options.win = nsa::BranchBackend::kFused;
  return {options};
}

/// A branch left to "auto" asked for nothing else than what applied.
std::vector<nsa::RanBackend> settled(std::vector<nsa::RanBackend> rows,
                                     const nsa::train::TrainingAttention& asked) {
  for (nsa::RanBackend& row : rows)
    if (asked.requested(row) == nsa::train::kAutoBackend) row.requested = row.backend;
  return rows;
}

/// P09: reads elements one at a time, each of which waits for the device.
void read_on_host(const at::Tensor& values) {
  const at::Tensor flat = values.detach().flatten();
  double sum = 0;
  for (int64_t i = 0; i < kReadsOfP09; ++i) sum += flat[i % flat.numel()].item<double>();
  TORCH_CHECK(!std::isnan(sum), "fault P09: values must be numbers");
}

at::Tensor host_bound_loss(const at::Tensor& logits, const at::Tensor& tokens) {
  read_on_host(logits);
  return nsa::next_token_loss(logits, tokens);
}

nsa::NsaOutputs host_bound_attention(const nsa::NsaInputs& inputs, const nsa::NsaConfig& config,
                                     const nsa::NsaOptions& options) {
  nsa::NsaOutputs out = nsa::nsa_attention(inputs, config, options);
  read_on_host(out.o);
  return out;
}

/// P30 is injected in the trace, everything else in the call.
AttentionFunction attention_of(const Args& args) {
  const std::string fault = args.get_text("fault", "");
  if (fault == "P09") return host_bound_attention;
  return fault == "P30" ? AttentionFunction(nsa::nsa_attention) : attention_under_test(args);
}

/// A trainer and what it borrows.
struct Training {
  std::unique_ptr<nsa::train::TokenSource> tokens;
  nsa::train::CollectiveLog collectives;
  std::unique_ptr<nsa::train::Trainer> trainer;
};

ProfiledStep training_step(const PhaseCase& one, const nsa::ModelConfig& config, int64_t seq_len,
                           nsa::train::RankGroup* ranks) {
  const std::string fault = one.args.get_text("fault", "");
  if (!fault.empty() && fault != "P09" && fault != "P30")
    throw ConfigError("args.fault of a training step must be P09 or P30, got '" + fault + "'");
  ProfiledStep step{.range = "train.step", .seq_len = seq_len, .type = input_type(one)};
  nsa::train::TrainOptions options;
  options.batch = one.args.get_int("B", 1, 1);
  options.accum = one.args.get_int("accum", 4, 1);
  // The launch of a graph has no range for each kernel; only a watched capture has.
  options.cuda_graph = one.args.get_bool("cuda_graph", false) ? "on" : "off";
  const auto asked = attention_asked(one);
  const auto made = std::make_shared<Training>();
  made->tokens = nsa::train::make_synthetic_source(config.vocab, one.seed());
  nsa::train::TrainerParts parts;
  parts.model =
      nsa::train::training_model(config, one.seed(), step.type, one.device, asked.options);
  parts.tokens = made->tokens.get();
  parts.loss = fault == "P09" ? host_bound_loss : nsa::next_token_loss;
  parts.learning_rate = [](int64_t) { return kProfiledLearningRate; };
  parts.ranks = ranks;
  if (ranks != nullptr) parts.collectives = &made->collectives;
  made->trainer =
      std::make_unique<nsa::train::Trainer>(std::move(parts), options, seq_len, one.device);
  step.tokens = options.batch * options.accum * seq_len * (ranks != nullptr ? ranks->world() : 1);
  step.run_ms = [made] { return made->trainer->step(/*wait_each=*/false).step_ms; };
  step.finish = [made] { made->trainer->finish(); };
  step.ran = [made, asked] { return settled(made->trainer->ran(), asked); };
  step.work =
      step_work(config, {.batch = options.batch,
                         .accum = options.accum,
                         .seq_len = seq_len,
                         .bytes_per_value = static_cast<int64_t>(at::elementSize(step.type))});
  return step;
}

/// Inputs of one attention call and its last result.
struct AttentionCall {
  nsa::NsaInputs inputs;
  nsa::NsaConfig config;
  nsa::NsaOptions options;
  AttentionFunction attention;
  nsa::NsaOutputs out;
};

double call_ms(AttentionCall& call, at::Device device, const char* range_name) {
  const at::NoGradGuard no_grad;
  const auto start = std::chrono::steady_clock::now();
  const nsa::NvtxRange range(range_name);
  call.out = call.attention(call.inputs, call.config, call.options);
  synchronize(device);
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

ProfiledStep attention_step(const PhaseCase& one, const nsa::ModelConfig& model, int64_t seq_len) {
  static constexpr const char* kRange = "attention.call";
  if (one.args.get_bool("cuda_graph", false))
    throw ConfigError("args.cuda_graph must be false with subject attention, got true");
  ProfiledStep step{.range = kRange, .seq_len = seq_len, .type = input_type(one)};
  const int64_t batch = one.args.get_int("B", 1, 1);
  CaseConfig sizes = attention_sizes(model.attention, batch, seq_len);
  const auto replace = [&](const char* key, int64_t& size) {
    if (const int64_t asked = one.args.get_int(key, 0, 0); asked > 0) size = asked;
  };
  replace("Hq", sizes.num_heads);
  replace("Hkv", sizes.num_kv_heads);
  replace("dk", sizes.qk_head_dim);
  replace("dv", sizes.v_head_dim);
  const auto call = std::make_shared<AttentionCall>();
  call->inputs = to_nsa(draw_inputs(sizes, step.type, one.device, one.seed()));
  call->config = to_nsa(sizes);
  const auto asked = attention_asked(one);
  call->options = asked.options;
  call->attention = attention_of(one.args);
  step.tokens = batch * seq_len;
  step.run_ms = [call, device = one.device] { return call_ms(*call, device, kRange); };
  step.ran = [call, asked] { return settled(call->out.ran, asked); };
  nsa::ModelConfig layer = model;
  layer.attention = call->config;
  layer.num_layers = 1;
  step.work =
      step_work(layer, {.batch = batch,
                        .accum = 1,
                        .seq_len = seq_len,
                        .bytes_per_value = static_cast<int64_t>(at::elementSize(step.type))});
  return step;
}

}  // namespace

ProfiledStep make_profiled_step(const PhaseCase& one, nsa::train::RankGroup* ranks,
                                int64_t seq_len) {
  const nsa::ModelConfig model = load_model(one.args);
  const int64_t length = length_of(one.args, model, seq_len);
  const std::string subject = one.args.get_text("subject", "train");
  if (subject == "train") return training_step(one, model, length, ranks);
  if (ranks != nullptr)
    throw ConfigError("args.ranks must be 1 with subject " + subject + ", got " +
                      std::to_string(ranks->world()));
  if (subject == "attention") return attention_step(one, model, length);
  throw ConfigError("args.subject must be train or attention, got '" + subject + "'");
}

}  // namespace suites

// What activation checkpointing costs and saves: the same training pass with and without it, in
// pairs. Both must give the same loss and gradients, bit for bit.
#include <ATen/ATen.h>

#include "nsa/model/blocks/loss.h"
#include "nsa/model/decoder.h"
#include "nsa/train/loop/training_attention.h"
#include "nsa/train/loop/training_model.h"
#include "nsa/train/memory/tensor_memory.h"
#include "suites/instrument/event_timer.h"
#include "suites/phases/attention_under_test.h"
#include "suites/phases/timing/rounds.h"
#include "suites/phases/training_phases.h"

namespace suites {
namespace {

using at::Tensor;

std::string fault_of(const Args& args) {
  const std::string fault = args.get_text("fault", "");
  if (!fault.empty() && fault != "other_tokens" && fault != "no_contrast")
    throw ConfigError("args.fault must be other_tokens or no_contrast, got '" + fault + "'");
  return fault;
}

class CheckpointingAb {
 public:
  explicit CheckpointingAb(const PhaseCase& one)
      : one_(one), rounds_(one.args.get_int("rounds", 3, 1)), fault_(fault_of(one.args)) {
    const nsa::ModelConfig config =
        nsa::load_model_config(one.args.get_text("model", "m7c_125m"), nsa::model_config_folders());
    const int64_t asked = one.args.get_int("S", 0, 0);
    const int64_t seq_len = asked > 0 ? asked : config.seq_len;
    nsa::train::watch_tensor_memory(one.device, 0);
    const auto attention =
        nsa::train::training_attention(nsa::SwitchSet::from_environment(one.in.switches),
                                       one.args.get_text("backend", "auto"), one.device);
    model_ = nsa::train::training_model(config, one.seed(), input_type(one), one.device,
                                        attention.options);
    tokens_ = at::randint(config.vocab, {one.args.get_int("B", 1, 1), seq_len + 1}, at::kLong)
                  .to(one.device);
  }

  std::string run() {
    const std::vector<Tensor> plain = gradients(false), again = gradients(true);
    const std::string broken = compare(plain, again);
    if (!broken.empty()) return "not valid, output mismatch: " + broken;
    if (emit_memory() <= 0)
      return "NO_CONTRAST: the pass with checkpointing takes no less memory than the one without";
    EventTimer timer(one_.device);
    const auto arm = [&](const std::string& name, bool on) {
      const auto work = [this, on] { pass(on); };
      return TimedSeries{name, work, calls_per_sample(timer, work, kMinSampleMs, 64)};
    };
    int64_t step = 0;
    time_rounds(one_, {arm("pass.off", false), arm("pass.off.aa", false), arm("pass.on", true)},
                rounds_, step, rounds_);
    return "";
  }

 private:
  /// Forward and backward; gradients stay in the parameters. Faults: other_tokens, the pass with
  /// checkpointing gets other ones; no_contrast, it is the one without.
  Tensor pass(bool checkpointing) {
    model_->activation_checkpointing = checkpointing && fault_ != "no_contrast";
    model_->zero_grad();
    const Tensor tokens = checkpointing && fault_ == "other_tokens" ? tokens_.roll(1, 1) : tokens_;
    const Tensor loss =
        nsa::next_token_loss(model_->forward(tokens.slice(1, 0, -1)).logits, tokens);
    loss.backward();
    return loss.detach();
  }

  /// The loss, then every gradient.
  std::vector<Tensor> gradients(bool checkpointing) {
    std::vector<Tensor> all = {pass(checkpointing)};
    for (const Tensor& p : model_->parameters()) all.push_back(p.grad().clone());
    return all;
  }

  /// Empty when the arms have the same bits.
  std::string compare(const std::vector<Tensor>& plain, const std::vector<Tensor>& again) {
    std::string broken;
    const auto names = model_->named_parameters().keys();
    for (size_t i = 0; i < plain.size() && broken.empty(); ++i)
      if (!at::equal(plain[i], again[i])) broken = i == 0 ? "loss" : "gradient of " + names[i - 1];
    one_.emitter.check({.case_id = one_.id,
                        .id = "bits/on",
                        .ok = broken.empty(),
                        .code = broken.empty() ? "" : "SPEEDUP_WITHHELD",
                        .detail = broken.empty() ? "loss and " + std::to_string(names.size()) +
                                                       " gradients have the same bits"
                                                 : broken + " differs"});
    return broken;
  }

  double peak_mib(bool checkpointing) {
    model_->zero_grad();
    nsa::train::reset_tensor_peak(one_.device);
    const double before = nsa::train::tensor_peak_mib(one_.device);
    pass(checkpointing);
    synchronize(one_.device);
    return nsa::train::tensor_peak_mib(one_.device) - before;
  }

  /// Percent of the peak that checkpointing saves.
  double emit_memory() {
    const double off = peak_mib(false), on = peak_mib(true);
    const auto emit = [&](const char* name, double value, const char* unit) {
      one_.emitter.metric({.case_id = one_.id, .name = name, .value = value, .unit = unit});
    };
    emit("off.peak_mib", off, "mib");
    emit("on.peak_mib", on, "mib");
    const double saving = 100 * (1 - on / off);
    emit("saving.peak_pct", saving, "pct");
    return saving;
  }

  const PhaseCase& one_;
  int64_t rounds_;
  std::string fault_;
  nsa::Decoder model_{nullptr};
  Tensor tokens_;
};

}  // namespace

std::string run_checkpointing_ab(const PhaseCase& one) {
  if (one.in.mode != "time")
    throw ConfigError("mode of checkpointing_ab must be time, got '" + one.in.mode + "'");
  return CheckpointingAb(one).run();
}

}  // namespace suites

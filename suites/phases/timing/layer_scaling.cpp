// Decoders of growing depth with packed selection: what packing for autograd costs (paired, without
// gradient), forward and backward times with gradient, and that every parameter still gets one.
#include <ATen/ATen.h>

#include <chrono>
#include <map>
#include <thread>

#include "nsa/model/blocks/loss.h"
#include "nsa/model/decoder.h"
#include "nsa/program/input_error.h"
#include "suites/conformance/case_inputs.h"
#include "suites/conformance/convert.h"
#include "suites/instrument/clock_probe.h"
#include "suites/instrument/event_timer.h"
#include "suites/instrument/facts.h"
#include "suites/phases/attention_case.h"
#include "suites/phases/attention_under_test.h"
#include "suites/phases/correctness/row_judge.h"
#include "suites/phases/timing/rounds.h"

namespace suites {
namespace {

using at::Tensor;

/// What is compared: how the selected branch is computed.
struct ScalingArm {
  std::string name;
  nsa::SelBackend backend;
  bool safe_pack;
};

const std::vector<ScalingArm>& scaling_arms() {
  static const std::vector<ScalingArm> kArms = {{"workspace", nsa::SelBackend::kPacked, false},
                                                {"gather", nsa::SelBackend::kGather, true},
                                                {"safe", nsa::SelBackend::kPacked, true}};
  return kArms;
}

nsa::NsaOptions layer_options(const ScalingArm& arm) {
  nsa::NsaOptions options;
  options.sel = arm.backend;
  options.safe_pack = arm.safe_pack;
  options.keep_scores = false;
  return options;
}

/// Faults of the phase itself; any other is one of the attention under test.
struct ScalingFault {
  bool slow_safe = false;  ///< 50 ms more in every call of the arm `safe`
  bool graph_cut = false;  ///< no gradient reaches the weights of the output

  static ScalingFault of(const Args& args) {
    const std::string fault = args.get_text("fault", "");
    return {.slow_safe = fault == "slow_safe", .graph_cut = fault == "graph_cut"};
  }
  bool any() const { return slow_safe || graph_cut; }
};

class Scaling {
 public:
  explicit Scaling(const PhaseCase& one)
      : one_(one),
        model_(load_model(one.args)),
        depths_(one.args.get_ints("layers", {1, 2, 4, 12}, 1)),
        tokens_(one.args.get_int("S", 256, 1)),
        batch_(one.args.get_int("B", 1, 1)),
        rounds_(one.args.get_int("rounds", 3, 1)),
        type_(input_type(one)),
        fault_(ScalingFault::of(one.args)),
        attention_(fault_.any() ? nsa::nsa_attention : attention_under_test(one.args)) {}

  std::string run() {
    const std::string wrong = judge_arms();
    if (!wrong.empty()) return "withheld: not valid, output mismatch in " + wrong;
    if (const std::string same = equal_arms(); !same.empty()) return same;
    for (const int64_t depth : depths_) {
      const std::string broken = scale(depth);
      if (!broken.empty()) return broken;
    }
    return "";
  }

 private:
  static nsa::ModelConfig load_model(const Args& args) {
    try {
      return nsa::load_model_config(args.get_text("model", "m7c_125m"),
                                    nsa::model_config_folders());
    } catch (const nsa::InputError& error) {
      throw ConfigError(error.what());
    }
  }

  /// Every arm at this length against the oracle, on inputs of the layer's attention.
  std::string judge_arms() {
    const CaseConfig config = attention_sizes(model_.attention, batch_, tokens_);
    const DenseInputs inputs =
        make_inputs(config, DataKind::kNormal, one_.seed(), type_, one_.device);
    const std::vector<int64_t> positions = judged_positions(config, 64, one_.seed());
    RowJudge judge(config, queries_at(inputs, positions), positions);
    std::string failed;
    for (const ScalingArm& arm : scaling_arms()) {
      const at::NoGradGuard no_grad;
      const nsa::NsaOutputs out = attention_(to_nsa(inputs), model_.attention, layer_options(arm));
      one_.emitter.check(path_check(one_, out.ran, nsa::to_string(arm.backend), arm.name));
      ran_[arm.name] = ran_text(out.ran, "sel_attn");
      failed += emit_checks(one_, judge.judge(rows_of(out, positions), arm.name));
    }
    failed += emit_checks(
        one_, judge_gradients(one_, config, {.backend = nsa::SelBackend::kPacked}, type_, "safe"));
    return failed;
  }

  /// "NO_CONTRAST: ..." when the record of what ran is the same for the arm that the others are
  /// compared with and one of them.
  std::string equal_arms() const {
    for (const auto& [name, ran] : ran_)
      if (name != "safe" && ran == ran_.at("safe"))
        return "NO_CONTRAST: arms " + name + " and safe both ran " + ran;
    return "";
  }

  nsa::Decoder decoder(int64_t depth) const {
    nsa::ModelConfig config = model_;
    config.num_layers = depth;
    at::manual_seed(one_.seed());
    nsa::Decoder model(config);
    model->to(one_.device, type_ == at::kDouble ? at::kDouble : at::kFloat);
    model->compute_type = type_;
    return model;
  }

  Tensor random_tokens() const {
    at::Generator g = make_generator(one_.seed());
    return at::randint(0, model_.vocab, {batch_, tokens_ + 1}, g, at::kLong).to(one_.device);
  }

  /// Both measurements at one depth. Returns why the depth failed; empty when it did not.
  std::string scale(int64_t depth) {
    const nsa::Decoder model = decoder(depth);
    const Tensor tokens = random_tokens();
    const std::string prefix = "layers" + std::to_string(depth) + ".";
    time_packing(model, tokens.slice(1, 0, -1), prefix);
    return time_training(model, tokens, prefix);
  }

  /// Forward without gradient, arms alternating; the arm that the others are compared with runs
  /// twice.
  void time_packing(nsa::Decoder model, const Tensor& tokens, const std::string& prefix) {
    const at::NoGradGuard no_grad;
    EventTimer timer(one_.device);
    std::vector<TimedSeries> series;
    for (const ScalingArm& arm : scaling_arms()) {
      const auto forward = [model, tokens, options = layer_options(arm),
                            slow = fault_.slow_safe && arm.name == "safe"]() mutable {
        model->set_attention_options(options);
        model->forward(tokens);
        if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      };
      const int64_t calls = calls_per_sample(timer, forward, kMinSampleMs, 64);
      series.push_back({prefix + arm.name, forward, calls});
      if (arm.name == "safe") series.push_back({prefix + arm.name + ".aa", forward, calls});
    }
    time_rounds(one_, series, rounds_, step_, steps());
  }

  /// Forward, backward and both, on the safe variant, which keeps the graph.
  std::string time_training(nsa::Decoder model, const Tensor& tokens, const std::string& prefix) {
    model->set_attention_options(layer_options(scaling_arms().back()));
    EventTimer timer(one_.device);
    for (int64_t round = -1; round < rounds_; ++round) {  // the first one warms up
      model->zero_grad();
      if (fault_.graph_cut) model->parameters().back().set_requires_grad(false);
      Tensor loss;
      const double forward = time_calls_ms(
          timer,
          [&] {
            loss = nsa::next_token_loss(model->forward(tokens.slice(1, 0, -1)).logits, tokens);
          },
          1);
      const double backward = time_calls_ms(timer, [&] { loss.backward(); }, 1);
      if (round < 0) {
        const std::string broken = check_graph(model, prefix);
        if (!broken.empty()) return broken;
        continue;
      }
      sample(prefix + "forward", forward, round);
      sample(prefix + "backward", backward, round);
      sample(prefix + "total", forward + backward, round);
      one_.emitter.beat({.case_id = one_.id,
                         .step = ++step_,
                         .of = steps(),
                         .at = prefix + "backward",
                         .mem_mib = peak_memory_mib(one_.device)});
    }
    return "";
  }

  /// Packing must not cut the graph: every parameter has a finite gradient that is not 0.
  std::string check_graph(const nsa::Decoder& model, const std::string& prefix) {
    std::string bad;
    int64_t count = 0;
    for (const auto& item : model->named_parameters()) {
      const Tensor gradient = item.value().grad();
      const bool fits = gradient.defined() && at::isfinite(gradient).all().item<bool>() &&
                        gradient.abs().max().item<double>() > 0;
      if (!fits && bad.empty()) bad = item.key();
      ++count;
    }
    one_.emitter.check({.case_id = one_.id,
                        .id = "graph/" + prefix.substr(0, prefix.size() - 1),
                        .ok = bad.empty() && count > 0,
                        .code = bad.empty() ? "" : "GRAPH_BROKEN",
                        .detail = bad.empty() ? std::to_string(count) + " parameters have gradients"
                                              : bad + " has no finite gradient"});
    return bad.empty() ? "" : "the graph is broken: " + bad + " has no finite gradient";
  }

  void sample(const std::string& series, double ms, int64_t round) {
    one_.emitter.sample({.case_id = one_.id,
                         .series = series,
                         .value = ms,
                         .unit = "ms",
                         .round = round,
                         .order = 0,
                         .clock_mhz = sm_clock_mhz(one_.device)});
  }

  int64_t steps() const { return 2 * rounds_ * static_cast<int64_t>(depths_.size()); }

  const PhaseCase& one_;
  nsa::ModelConfig model_;
  std::vector<int64_t> depths_;
  int64_t tokens_, batch_, rounds_;
  at::ScalarType type_;
  ScalingFault fault_;
  std::map<std::string, std::string> ran_;  ///< selected branch, by arm
  AttentionFunction attention_;
  int64_t step_ = 0;
};

}  // namespace

std::string run_layer_scaling(const PhaseCase& one) {
  if (one.in.mode != "time")
    throw ConfigError("mode of layer_scaling must be time, got '" + one.in.mode + "'");
  return Scaling(one).run();
}

}  // namespace suites

// Decode steps with the selected branch as the flag leaves it (OFF) and as varlen (ON), paired in
// one process at several contexts: steps against the oracle first, a mismatch leaves no samples.
#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <thread>

#include "nsa/decode/cache/layer_cache.h"
#include "suites/conformance/convert.h"
#include "suites/phases/attention_case.h"
#include "suites/phases/attention_under_test.h"
#include "suites/phases/correctness/row_judge.h"
#include "suites/phases/timing/rounds.h"

namespace suites {
namespace {

using at::Tensor;

/// Steps judged before a context: with two KV heads 64 rows.
constexpr int64_t kJudgedSteps = 32;

struct DecodeAbPlan {
  std::vector<int64_t> contexts;
  CaseConfig config;
  at::ScalarType type = at::kFloat;
  int64_t rounds = 3, steps = 16;
  std::string fault;
};

DecodeAbPlan read_decode_plan(const PhaseCase& one) {
  DecodeAbPlan plan;
  plan.contexts = one.args.get_ints("contexts", {512, 1024, 2048, 8192, 65536}, kJudgedSteps + 1);
  plan.config = attention_sizes(one.args, 8, 2, 32);
  plan.rounds = one.args.get_int("rounds", 3, 1);
  plan.steps = one.args.get_int("steps", 16, 1);
  plan.type = input_type(one);
  plan.fault = one.args.get_text("fault", "");
  static const std::vector<std::string> kFaults = {"", "P06", "P07", "no_contrast", "slow_on"};
  if (std::ranges::find(kFaults, plan.fault) == kFaults.end())
    throw ConfigError("args.fault must be P06, P07, no_contrast or slow_on, got '" + plan.fault +
                      "'");
  return plan;
}

/// One arm: a cache filled up to the context and the options of its steps.
class DecodeArm {
 public:
  DecodeArm(std::string name, nsa::SelBackend backend, const DecodeAbPlan& plan,
            const DenseInputs& tokens)
      : name_(std::move(name)),
        tokens_(tokens),
        placeholder_(plan.fault == "P06" && backend != nsa::SelBackend::kGather),
        slow_(plan.fault == "slow_on" && backend != nsa::SelBackend::kGather),
        cache_(to_nsa(plan.config), 1, tokens.q.size(1), tokens.q.options()) {
    options_.sel = backend;
    if (backend != nsa::SelBackend::kGather && plan.fault == "P07")
      options_.sel = nsa::SelBackend::kPacked;
    if (plan.fault == "no_contrast") options_.sel = nsa::SelBackend::kGather;
    options_.keep_scores = false;
  }

  const std::string& name() const { return name_; }
  int64_t length() const { return cache_.num_tokens(0); }
  Tensor blocks() const { return cache_.blocks(0).first.unsqueeze(0); }

  void prefill(int64_t length) {
    cache_.prefill(to_nsa(narrow_tokens(tokens_, 0, length)), {length}, options_);
  }

  nsa::DecodeOutputs step() {
    nsa::DecodeOutputs out = cache_.step(to_nsa(narrow_tokens(tokens_, length(), 1)), options_);
    if (placeholder_) out.o = out.o * 0;
    if (slow_) std::this_thread::sleep_for(std::chrono::milliseconds(40));
    return out;
  }

 private:
  std::string name_;
  const DenseInputs& tokens_;
  bool placeholder_, slow_;
  nsa::NsaOptions options_;
  nsa::LayerCache cache_;
};

class DecodeAb {
 public:
  DecodeAb(const PhaseCase& one, DecodeAbPlan plan) : one_(one), plan_(std::move(plan)) {}

  std::string run() {
    const at::NoGradGuard no_grad;
    for (const int64_t context : plan_.contexts) {
      const std::string failed = measure(context);
      if (!failed.empty()) return "speed-up withheld: not valid, output mismatch in " + failed;
    }
    emit_paths();
    if (paths_["on"] == paths_["off"]) return "NO_CONTRAST: both arms ran " + paths_["on"];
    return "";
  }

 private:
  /// Steps of a context that every series takes: twice a round, and on a GPU with a cold cache too.
  int64_t timed_steps() const {
    return (one_.device.is_cuda() ? 4 : 2) * plan_.rounds * plan_.steps;
  }

  std::string measure(int64_t context) {
    CaseConfig config = plan_.config;
    config.tokens = context + timed_steps() + plan_.steps;
    const DenseInputs tokens = draw_inputs(config, plan_.type, one_.device, one_.seed());
    // A cache of its own for the second look at OFF (A/A), so that all series grow alike.
    std::vector<std::unique_ptr<DecodeArm>> arms;
    arms.push_back(std::make_unique<DecodeArm>("off", nsa::SelBackend::kGather, plan_, tokens));
    arms.push_back(std::make_unique<DecodeArm>("off.aa", nsa::SelBackend::kGather, plan_, tokens));
    arms.push_back(std::make_unique<DecodeArm>("on", nsa::SelBackend::kVarlen, plan_, tokens));
    const std::string prefix = "c" + std::to_string(context) + ".";
    std::string failed;
    for (const auto& arm : arms) {
      arm->prefill(context - kJudgedSteps);
      failed += judge_steps(config, tokens, context, *arm, prefix);
    }
    if (failed.empty()) time_steps(arms, prefix);
    return failed;
  }

  /// The steps just before the context, against the oracle on the arm's own ids.
  std::string judge_steps(CaseConfig config, const DenseInputs& tokens, int64_t context,
                          DecodeArm& arm, const std::string& prefix) {
    std::vector<CandidateRows> rows;
    std::vector<int64_t> positions;
    for (int64_t t = context - kJudgedSteps; t < context; ++t) {
      const nsa::DecodeOutputs out = arm.step();
      rows.push_back({out.q_rot, {}, out.block_idx, out.o_cmp, out.o_sel, out.o_win, out.o});
      positions.push_back(t);
      paths_[arm.name()] = ran_text(out.ran, "sel_attn");
    }
    CandidateRows all = joined(rows);
    all.k_cmp = arm.blocks();
    config.tokens = context;
    RowJudge judge(config, queries_at(narrow_tokens(tokens, 0, context), positions), positions);
    return emit_checks(one_, judge.judge(all, prefix + arm.name()));
  }

  void time_steps(const std::vector<std::unique_ptr<DecodeArm>>& arms, const std::string& prefix) {
    std::vector<TimedSeries> series;
    for (const auto& arm : arms) {
      for (int64_t i = 0; i < plan_.steps; ++i) arm->step();  // warms up
      series.push_back({prefix + arm->name(), [&arm] { arm->step(); }, plan_.steps});
    }
    std::vector<TimedSeries> cold;
    if (one_.device.is_cuda())
      for (const TimedSeries& each : series)
        cold.push_back({prefix + "cold." + each.name.substr(prefix.size()), each.work, each.calls,
                        /*cold=*/true});
    const int64_t of =
        plan_.rounds * static_cast<int64_t>(plan_.contexts.size()) * (cold.empty() ? 1 : 2);
    time_rounds(one_, series, plan_.rounds, step_, of);
    if (!cold.empty()) time_rounds(one_, cold, plan_.rounds, step_, of);
  }

  /// What the flag asks for and what a step ran: a difference is a figure of the report.
  void emit_paths() {
    nlohmann::json rows = nlohmann::json::array();
    rows.push_back({"OFF", "gather", paths_["off"]});
    rows.push_back({"ON", "varlen", paths_["on"]});
    one_.emitter.metric({.case_id = one_.id,
                         .name = "on.honoured_bool",
                         .value = paths_["on"].starts_with("varlen"),
                         .unit = "bool"});
    if (one_.in.group == "g01")
      one_.emitter.table({.case_id = one_.id,
                          .id = "paths",
                          .title = "Selected branch of a decode step",
                          .columns = {"flag", "requested", "ran"},
                          .rows = rows});
  }

  const PhaseCase& one_;
  DecodeAbPlan plan_;
  std::map<std::string, std::string> paths_;
  int64_t step_ = 0;
};

}  // namespace

std::string run_decode_ab(const PhaseCase& one) {
  if (one.in.mode != "time")
    throw ConfigError("mode of decode_ab must be time, got '" + one.in.mode + "'");
  return DecodeAb(one, read_decode_plan(one)).run();
}

}  // namespace suites

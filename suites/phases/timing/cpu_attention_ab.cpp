// Attention on a CPU against length, the CPU kernels beside LibTorch's dense attention, paired in
// one process: outputs and gradients against the oracle first, a mismatch leaves no samples. The
// longest length comes first: no heartbeat is then further from the last one than those before it.
#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <thread>

#include "nsa/decode/cache/layer_cache.h"
#include "suites/conformance/convert.h"
#include "suites/instrument/dilation.h"
#include "suites/instrument/event_timer.h"
#include "suites/phases/attention_case.h"
#include "suites/phases/attention_under_test.h"
#include "suites/phases/correctness/row_judge.h"
#include "suites/phases/target_call.h"
#include "suites/phases/timing/cpu_arms.h"
#include "suites/phases/timing/rounds.h"

namespace suites {
namespace {

using at::Tensor;

constexpr int64_t kJudgedCpuSteps = 16;
constexpr int64_t kMostCalls = 128;  ///< decode steps of a sample
constexpr double kDecodeSampleMs = 20;
constexpr int64_t kWarmedTokens = 8192;
constexpr auto kSlowCall = std::chrono::milliseconds(100);  ///< fault slow_nsa

struct CpuAbPlan {
  std::vector<int64_t> lengths;
  CaseConfig config;  ///< of one length; tokens changes
  at::ScalarType type = at::kFloat;
  CpuWork work = CpuWork::kTraining;
  int64_t rounds = 1, rows = 16;
  bool repeat = true;
  std::string fault;
};

CpuAbPlan read_cpu_plan(const PhaseCase& one) {
  CpuAbPlan plan;
  plan.lengths = one.args.get_ints("S", {1024, 2048, 4096, 8192, 16384, 32768, 65536}, 64);
  plan.config = attention_sizes(one.args, 12, 2, 64);
  plan.config.rope = RopeKind::kNone;
  plan.config.gate = GateKind::kSigmoid;
  plan.type = input_type(one);
  const std::string work = one.args.get_text("work", "training");
  if (work != "training" && work != "decode")
    throw ConfigError("args.work must be training or decode, got '" + work + "'");
  plan.work = work == "decode" ? CpuWork::kDecode : CpuWork::kTraining;
  plan.rounds = one.args.get_int("rounds", 1, 1);
  plan.rows = one.args.get_int("rows", 16, 1);
  plan.repeat = one.args.get_bool("repeat", true);
  plan.fault = one.args.get_text("fault", "");
  static const std::vector<std::string> kFaults = {"", "P06", "P07", "slow_nsa"};
  if (std::ranges::find(kFaults, plan.fault) == kFaults.end())
    throw ConfigError("args.fault must be P06, P07 or slow_nsa, got '" + plan.fault + "'");
  if (!one.device.is_cpu()) throw ConfigError("device of cpu_attention_ab must be cpu");
  return plan;
}

/// The kernels, or with fault P07 the plain operators in their place.
nsa::NsaOptions options_of(const CpuAbPlan& plan) {
  nsa::NsaOptions plain;
  plain.keep_scores = false;
  return plan.fault == "P07" ? plain : cpu_kernels();
}

/// What is timed at one length: a whole forward and backward call, or a decode step.
class CpuLength {
 public:
  virtual ~CpuLength() = default;
  /// What a judgement of the rows found, and what ran.
  virtual Checks judge(const std::string& name) = 0;
  const std::vector<nsa::RanBackend>& ran() const { return ran_; }
  virtual void run_ours() = 0;
  virtual void run_dense(size_t arm) = 0;

 protected:
  std::vector<nsa::RanBackend> ran_;
};

class TrainingLength : public CpuLength {
 public:
  TrainingLength(const CpuAbPlan& plan, const CaseConfig& config, uint64_t seed)
      : plan_(plan),
        config_(config),
        seed_(seed),
        call_(config, at::kCPU, seed, plan.type, options_of(plan)) {
    for (const at::ScalarType type : dense_types(plan.type))
      dense_.emplace_back(call_.leaves()[0], call_.leaves()[1], call_.leaves()[2], type);
  }

  Checks judge(const std::string& name) override {
    const at::NoGradGuard no_grad;
    const auto positions = judged_positions(config_, plan_.rows, seed_);
    RowJudge judge(config_, queries_at(call_.inputs(), positions), positions);
    nsa::NsaOutputs out = call_.forward();
    ran_ = out.ran;
    if (plan_.fault == "P06") out.o = out.o * 0;
    return judge.judge(rows_of(out, positions), name);
  }
  void run_ours() override {
    const Tensor o = call_.forward().o;
    call_.backward(o, at::ones_like(o));
  }
  void run_dense(size_t arm) override {
    const Tensor o = dense_[arm].forward();
    dense_[arm].backward(o, at::ones_like(o));
  }

 private:
  const CpuAbPlan& plan_;
  CaseConfig config_;
  uint64_t seed_;
  TargetCall call_;
  std::vector<DenseArm> dense_;
};

class DecodeLength : public CpuLength {
 public:
  DecodeLength(const CpuAbPlan& plan, const CaseConfig& config, uint64_t seed)
      : plan_(plan),
        config_(config),
        context_(config.tokens),
        options_(options_of(plan)),
        tokens_(draw_inputs(with_steps(config), plan.type, at::kCPU, seed)),
        cache_(to_nsa(config), 1, context_ + steps_of(plan), tokens_.q.options()) {
    const at::NoGradGuard no_grad;
    cache_.load_context(0, to_nsa(narrow_tokens(tokens_, 0, context_)));
    for (const at::ScalarType type : dense_types(plan.type))
      dense_.emplace_back(tokens_.q.narrow(1, context_, 1), tokens_.k_sel.narrow(1, 0, context_),
                          tokens_.v_sel.narrow(1, 0, context_), type, /*causal=*/false);
  }

  Checks judge(const std::string& name) override {
    const at::NoGradGuard no_grad;
    std::vector<CandidateRows> rows;
    std::vector<int64_t> positions;
    for (int64_t t = context_; t < context_ + kJudgedCpuSteps; ++t) {
      nsa::DecodeOutputs out = cache_.step(to_nsa(narrow_tokens(tokens_, t, 1)), options_);
      if (plan_.fault == "P06") out.o = out.o * 0;
      rows.push_back({out.q_rot, {}, out.block_idx, out.o_cmp, out.o_sel, out.o_win, out.o});
      positions.push_back(t);
      ran_ = out.ran;
    }
    CandidateRows all = joined(rows);
    all.k_cmp = cache_.blocks(0).first.unsqueeze(0);
    RowJudge judge(with_steps(config_), queries_at(tokens_, positions), positions);
    return judge.judge(all, name);
  }
  void run_ours() override {
    const at::NoGradGuard no_grad;
    cache_.step(to_nsa(narrow_tokens(tokens_, context_, 1)), options_);
  }
  void run_dense(size_t arm) override {
    const at::NoGradGuard no_grad;
    dense_[arm].forward();
  }

 private:
  /// Judged ones, those that find out how many make a sample, and the samples of two series.
  static int64_t steps_of(const CpuAbPlan& plan) {
    return kJudgedCpuSteps + 2 * kMostCalls + 4 * plan.rounds * kMostCalls;
  }
  static CaseConfig with_steps(CaseConfig config) {
    config.tokens += kJudgedCpuSteps;
    return config;
  }

  const CpuAbPlan& plan_;
  CaseConfig config_;
  int64_t context_;
  nsa::NsaOptions options_;
  DenseInputs tokens_;
  nsa::LayerCache cache_;
  std::vector<DenseArm> dense_;
};

class CpuAttentionAb {
 public:
  CpuAttentionAb(const PhaseCase& one, CpuAbPlan plan) : one_(one), plan_(std::move(plan)) {}

  std::string run() {
    std::ranges::sort(plan_.lengths, std::greater());
    const std::string failed =
        emit_checks(one_, judge_cpu_gradients(plan_.config, plan_.type, one_.seed(), "gradients"));
    if (!failed.empty()) return kWithheldIn + failed;
    for (const int64_t tokens : plan_.lengths) {
      CaseConfig config = plan_.config;
      config.tokens = tokens;
      const std::string obstacle =
          cpu_arm_obstacle(plan_.work, config, plan_.type, dense_types(plan_.type));
      if (!obstacle.empty()) {
        not_run_.push_back({tokens, obstacle});
        continue;
      }
      const std::string wrong = measure(config);
      if (!wrong.empty()) return kWithheldIn + wrong;
    }
    if (!not_run_.empty())
      one_.emitter.table({.case_id = one_.id,
                          .id = "not_run",
                          .title = "Lengths that do not fit into memory",
                          .columns = {"tokens", "reason"},
                          .rows = not_run_});
    return "";
  }

 private:
  const std::string kWithheldIn = "speed-up withheld: not valid, output mismatch in ";

  std::string measure(const CaseConfig& config) {
    std::unique_ptr<CpuLength> length;
    if (plan_.work == CpuWork::kDecode)
      length = std::make_unique<DecodeLength>(plan_, config, one_.seed());
    else
      length = std::make_unique<TrainingLength>(plan_, config, one_.seed());
    const std::string name = "s" + std::to_string(config.tokens);
    const std::string failed = emit_checks(one_, length->judge(name));
    emit_path(*length, name);
    if (failed.empty()) time_arms(*length, config.tokens);
    return failed;
  }

  /// Times of anything but the kernels are not theirs.
  void emit_path(const CpuLength& length, const std::string& name) {
    for (const char* stage : {"cmp_attn", "sel_attn", "win_attn", "select"}) {
      const std::string ran = ran_text(length.ran(), stage);
      if (ran == "nothing" && plan_.work == CpuWork::kDecode) continue;
      const bool ok = ran == "cpu" || ran.starts_with("cpu (");
      one_.emitter.check({.case_id = one_.id,
                          .id = "path/" + std::string(stage) + "/" + name,
                          .ok = ok,
                          .code = ok ? "" : code::kPathProof,
                          .detail = "requested cpu, ran " + ran});
    }
  }

  void time_arms(CpuLength& length, int64_t tokens) {
    const std::string prefix = "s" + std::to_string(tokens) + ".";
    EventTimer timer(one_.device);
    std::vector<TimedSeries> series;
    std::map<std::string, std::vector<double>> times;
    const auto add = [&](const std::string& arm, const std::function<void()>& work, int64_t calls) {
      series.push_back({.name = prefix + arm,
                        .work = work,
                        .calls = calls,
                        .joined = [&times = times[arm]](double ms) {
                          times.push_back(ms);
                          return ms;
                        }});
    };
    const std::vector<at::ScalarType> types = dense_types(plan_.type);
    for (size_t i = 0; i < types.size(); ++i) {
      const auto work = [&length, i] { length.run_dense(i); };
      add("dense_" + dtype_name(types[i]), work, calls_of(timer, work, tokens));
    }
    const auto ours = [&length, slow = plan_.fault == "slow_nsa"] {
      length.run_ours();
      if (slow) std::this_thread::sleep_for(kSlowCall);
    };
    const int64_t calls = calls_of(timer, ours, tokens);
    add("nsa", ours, calls);
    if (plan_.repeat) add("nsa.aa", ours, calls);
    time_rounds(one_, series, plan_.rounds, step_,
                plan_.rounds * static_cast<int64_t>(plan_.lengths.size()));
    if (tokens != plan_.lengths.front()) return;
    double fastest = HUGE_VAL;
    for (const at::ScalarType type : types)
      fastest = std::min(fastest, median(times.at("dense_" + dtype_name(type))));
    one_.emitter.metric({.case_id = one_.id,
                         .name = "longest.faster_ratio",
                         .value = fastest / median(times.at("nsa")),
                         .unit = "ratio"});
  }

  int64_t calls_of(EventTimer& timer, const std::function<void()>& work, int64_t tokens) const {
    if (plan_.work == CpuWork::kDecode)
      return calls_per_sample(timer, work, kDecodeSampleMs, kMostCalls);
    if (tokens <= kWarmedTokens) work();  // longer calls pay for nothing of weight the first time
    return 1;
  }

  const PhaseCase& one_;
  CpuAbPlan plan_;
  nlohmann::json not_run_ = nlohmann::json::array();
  int64_t step_ = 0;
};

}  // namespace

std::string run_cpu_attention_ab(const PhaseCase& one) {
  if (one.in.mode != "time")
    throw ConfigError("mode of cpu_attention_ab must be time, got '" + one.in.mode + "'");
  return CpuAttentionAb(one, read_cpu_plan(one)).run();
}

}  // namespace suites

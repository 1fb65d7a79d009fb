// Bucket caps and compression of data-parallel training, in pairs: one trainer for each arm, all on
// the same ranks, data and first weights; the arms alternate, a step each. Rank 0 reports.
#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "nsa/model/blocks/loss.h"
#include "nsa/program/open_device.h"
#include "nsa/train/loop/trainer.h"
#include "nsa/train/loop/training_attention.h"
#include "nsa/train/loop/training_model.h"
#include "nsa/train/record/bucket_report.h"
#include "suites/instrument/event_timer.h"
#include "suites/phases/attention_under_test.h"
#include "suites/phases/phase_ranks.h"
#include "suites/phases/timing/rounds.h"
#include "suites/phases/training_phases.h"

namespace suites {
namespace {

namespace train = nsa::train;

constexpr double kSweepLearningRate = 1e-4;
constexpr double kMibBytes = 1024.0 * 1024.0;

struct SweepArm {
  std::string name;  ///< cap25, cap25_bf16; alone: every rank for itself
  bool alone = false;
  train::TrainOptions options;
  std::unique_ptr<train::Trainer> trainer;
  double first_loss = 0;
  std::vector<train::Communication> overlaps;  ///< of its timed steps
  std::vector<double> slowest_ms;              ///< of its samples: the step of the slowest rank
};

class DdpSweep {
 public:
  explicit DdpSweep(const PhaseCase& one)
      : one_(one),
        device_(nsa::open_device(one.device.str())),
        ranks_(open_ranks(one, 2)),
        graph_(one.args.get_bool("cuda_graph", false)),
        warmup_(one.args.get_int("warmup", graph_ ? 5 : 3, graph_ ? 5 : 2)),
        calls_(one.args.get_int("calls", 2, 1)),
        rounds_(one.args.get_int("rounds", 3, 1)),
        config_(nsa::load_model_config(one.args.get_text("model", "m7c_125m"),
                                       nsa::model_config_folders())),
        fault_(one.args.get_text("fault", "")) {
    static const std::vector<std::string> kFaults = {"", "P22", "other_weights", "slow_large"};
    if (std::ranges::find(kFaults, fault_) == kFaults.end())
      throw ConfigError("args.fault must be P22, other_weights or slow_large, got '" + fault_ +
                        "'");
    const int64_t asked = one.args.get_int("S", 0, 0);
    seq_len_ = asked > 0 ? asked : config_.seq_len;
    tokens_ = train::make_synthetic_source(config_.vocab, one.seed());
    attention_ = train::training_attention(nsa::SwitchSet::from_environment(one.in.switches),
                                           one.args.get_text("backend", "auto"), device_)
                     .options;
    for (const int64_t cap : one.args.get_ints("caps", {25, 50, 100}, 1))
      for (const std::string& compress : one.args.get_list("compress", {"none", "bf16"}))
        add_arm(cap, compress);
    add_arm_alone();
  }

  std::string run() {
    for (SweepArm& arm : arms_) warm_up(arm);
    emit_buckets();
    const std::string broken = check_arms();
    if (!broken.empty()) return broken;
    time_arms();
    for (const SweepArm& arm : arms_) emit_arm(arm);
    for (SweepArm& arm : arms_) arm.trainer->finish();
    ranks_.group->leave();
    return "";
  }

 private:
  void add_arm(int64_t cap, const std::string& compress) {
    if (compress != "none" && compress != "bf16")
      throw ConfigError("args.compress must name none or bf16, got '" + compress + "'");
    SweepArm arm;
    arm.name = "cap" + std::to_string(cap) + (compress == "bf16" ? "_bf16" : "");
    arm.options.reducer = {.bucket_mib = cap, .bf16 = compress == "bf16"};
    add(std::move(arm));
  }

  /// What ranks do without one another: their time over the others' is the share of the linear
  /// rate.
  void add_arm_alone() {
    SweepArm arm;
    arm.name = "alone";
    arm.alone = true;
    add(std::move(arm));
  }

  void add(SweepArm arm) {
    arm.options.batch = one_.args.get_int("B", 1, 1);
    arm.options.accum = one_.args.get_int("accum", 1, 1);
    arm.options.cuda_graph = graph_ ? "on" : "off";  // a rank alone works as one of several does
    train::TrainerParts parts;
    const bool other = fault_ == "other_weights" && !arms_.empty();
    parts.model = train::training_model(config_, one_.seed() + (other ? 1 : 0), input_type(one_),
                                        device_, attention_);
    if (fault_ == "P22")  // the reducer is given no cap: every gradient travels alone
      parts.reduce = [](train::ReducerOptions asked) {
        asked.bucket_mib = 0;
        return asked;
      };
    parts.tokens = tokens_.get();
    parts.loss = nsa::next_token_loss;
    parts.learning_rate = [](int64_t) { return kSweepLearningRate; };
    if (!arm.alone) {
      parts.ranks = ranks_.group.get();
      parts.collectives = &collectives_;
    }
    arm.trainer =
        std::make_unique<train::Trainer>(std::move(parts), arm.options, seq_len_, device_);
    arms_.push_back(std::move(arm));
  }

  /// The first steps build the buckets anew; equal losses show that all arms train alike.
  void warm_up(SweepArm& arm) {
    for (int64_t i = 0; i < warmup_; ++i) {
      const double loss = arm.trainer->step(/*wait_each=*/false).loss;
      if (i == 1) arm.first_loss = loss;  // behind the first update
      one_.emitter.beat({.case_id = one_.id, .step = i + 1, .of = warmup_, .at = "warm-up"});
    }
  }

  train::Check bucket_check(const SweepArm& arm) const {
    train::RunFacts facts;
    facts.ranks = ranks_.place.world;
    facts.bucket_bytes = arm.trainer->bucket_bytes();
    for (const at::Tensor& p : arm.trainer->model()->parameters())
      facts.largest_parameter_bytes =
          std::max(facts.largest_parameter_bytes, static_cast<int64_t>(p.nbytes()));
    return train::check_buckets(arm.options.reducer, facts);
  }

  /// Empty when every arm sent the buckets asked for and trained as the first one: two ranks' sums
  /// have the same bits in any bucket; rounded gradients may differ.
  std::string check_arms() {
    std::string broken;
    const auto plain =
        std::ranges::find_if(arms_, [](const SweepArm& arm) { return !arm.options.reducer.bf16; });
    for (const SweepArm& arm : arms_) {
      if (arm.alone) continue;
      const train::Check buckets = bucket_check(arm);
      emit({.case_id = one_.id,
            .id = "bucket_cap/" + arm.name,
            .ok = buckets.ok,
            .code = buckets.ok ? "" : buckets.code,
            .detail = buckets.detail});
      const bool exact = !arm.options.reducer.bf16 && ranks_.place.world == 2;
      const bool same = !exact || arm.first_loss == plain->first_loss;
      if (exact)
        emit({.case_id = one_.id,
              .id = "same_loss/" + arm.name,
              .ok = same,
              .code = same ? "" : "SPEEDUP_WITHHELD",
              .detail = "loss behind the first update: " + std::to_string(arm.first_loss)});
      if (broken.empty() && !buckets.ok) broken = arm.name + ": " + buckets.detail;
      if (broken.empty() && !same) broken = arm.name + " trains another model";
    }
    return broken;
  }

  void emit(const base::protocol::Check& check) {
    if (reports()) one_.emitter.check(check);
  }

  void emit_buckets() {
    if (!reports()) return;
    nlohmann::json rows = nlohmann::json::array();
    for (const SweepArm& arm : arms_) {
      const std::vector<int64_t> bytes = arm.trainer->bucket_bytes();
      for (size_t i = 0; i < bytes.size(); ++i)
        rows.push_back({arm.name, arm.options.reducer.bucket_mib, i,
                        static_cast<double>(bytes[i]) / kMibBytes});
    }
    one_.emitter.table({.case_id = one_.id,
                        .id = "sent",
                        .title = "Buckets of gradients as they were sent",
                        .columns = {"arm", "cap asked for, MiB", "bucket", "MiB"},
                        .rows = rows});
  }

  /// Every rank takes the same steps in the same order, and all begin a sample together: without
  /// that, the lag of a slower GPU would count for the next sample.
  void time_arms() {
    std::vector<TimedSeries> series;
    const auto add = [&](const std::string& name, SweepArm& arm) {
      series.push_back({.name = "step." + name,
                        .work = [this, &arm] { take_step(arm); },
                        .calls = calls_,
                        .before = [this] { meet(); },
                        .joined = [this, &arm](double ms) { return over_ranks(ms, arm); }});
    };
    for (SweepArm& arm : arms_) {
      add(arm.name, arm);
      if (is_compared_with(arm)) add(arm.name + ".aa", arm);
    }
    const UnreportedCase unreported(one_);
    int64_t step = 0;
    time_rounds(reports() ? one_ : unreported.one(), series, rounds_, step, rounds_);
  }

  /// The first arm of a pair (configs/kinds/ddp_sweep.json), which is measured twice.
  static bool is_compared_with(const SweepArm& arm) { return !arm.options.reducer.bf16; }

  void meet() {
    ranks_.group->barrier();
    synchronize(device_);
  }

  /// The time at whose rate all ranks together would do what they did: of GPUs that are not equally
  /// fast, the linear rate is the sum of their rates, not so many times that of the first.
  double over_ranks(double ms, SweepArm& arm) {
    at::Tensor all = at::zeros({ranks_.place.world}, at::device(device_).dtype(at::kDouble));
    all[ranks_.place.rank] = ms;
    ranks_.group->sum(all);
    arm.slowest_ms.push_back(all.max().item<double>());
    return static_cast<double>(ranks_.place.world) / all.reciprocal().sum().item<double>();
  }

  /// Fault slow_large: steps with buckets of 50 MiB or more wait 50 ms, as bf16 150 ms.
  void take_step(SweepArm& arm) {
    arm.trainer->step(/*wait_each=*/false);
    if (fault_ == "slow_large" && !arm.alone && arm.options.reducer.bucket_mib >= 50)
      std::this_thread::sleep_for(std::chrono::milliseconds(arm.options.reducer.bf16 ? 150 : 50));
    arm.overlaps.push_back(arm.trainer->communication());
    if (!reports())  // the others are watched, too
      one_.emitter.beat({.case_id = one_.id, .step = ++taken_, .of = 0, .at = "step"});
  }

  void emit_arm(const SweepArm& arm) {
    if (arm.alone) return emit_values(arm, "slowest.", "ms", arm.slowest_ms);
    // Of every timed step, from moments on its stream (a CPU: on the host's clock).
    std::vector<double> busy, exposed, overlapped;
    for (const train::Communication& found : arm.overlaps) {
      busy.push_back(found.busy_ms);
      exposed.push_back(found.exposed_ms);
      overlapped.push_back(found.overlapped_pct());
    }
    emit_values(arm, "comm_busy.", "ms", busy);
    emit_values(arm, "comm_exposed.", "ms", exposed);
    emit_values(arm, "comm_overlapped.", "pct", overlapped);
  }

  void emit_values(const SweepArm& arm, const std::string& series, const std::string& unit,
                   const std::vector<double>& values) {
    for (size_t i = 0; reports() && i < values.size(); ++i)
      one_.emitter.sample({.case_id = one_.id,
                           .series = series + arm.name,
                           .value = values[i],
                           .unit = unit,
                           .round = 0,
                           .order = static_cast<int64_t>(i)});
  }

  bool reports() const { return ranks_.reports(); }

  const PhaseCase& one_;
  at::Device device_;
  PhaseRanks ranks_;
  bool graph_;
  int64_t warmup_, calls_, rounds_, seq_len_ = 0, taken_ = 0;
  nsa::ModelConfig config_;
  std::string fault_;
  train::CollectiveLog collectives_;
  std::unique_ptr<train::TokenSource> tokens_;
  nsa::NsaOptions attention_;
  std::vector<SweepArm> arms_;
};

}  // namespace

std::string run_ddp_sweep(const PhaseCase& one) {
  if (one.in.mode != "time")
    throw ConfigError("mode of ddp_sweep must be time, got '" + one.in.mode + "'");
  return DdpSweep(one).run();
}

}  // namespace suites

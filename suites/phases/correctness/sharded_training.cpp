// Training whose parameters are divided among ranks, beside training with whole ones: the same
// losses and parameters, a part of the memory, the same again from a checkpoint of another number
// of ranks; rates of the collectives, and what they predict for more ranks. Rank 0 reports.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <optional>
#include <thread>

#include "nsa/train/checkpoint/checkpoint_store.h"
#include "nsa/train/memory/tensor_memory.h"
#include "nsa/train/shard/communication_model.h"
#include "nsa/train/shard/shard_collectives.h"
#include "suites/instrument/event_timer.h"
#include "suites/phases/correctness/sharded_arm.h"
#include "suites/phases/phase_ranks.h"
#include "suites/phases/training_phases.h"

namespace suites {
namespace {

namespace train = nsa::train;
using nlohmann::json;

constexpr int64_t kMostRanks = 1024;
constexpr int64_t kRateCalls = 9;  ///< of each collective; their median counts
constexpr double kNsOfMs = 1e6;    ///< bytes over ns: GB/s

std::string difference_text(double difference) {
  char text[48];
  std::snprintf(text, sizeof text, "%.3g", difference);
  return difference == 0 ? "the same bits" : "differs by up to " + std::string(text);
}

class ShardedTraining {
 public:
  explicit ShardedTraining(const PhaseCase& one)
      : one_(one),
        steps_(one.args.get_int("steps", 4, 2)),
        rows_(one.args.get_int("B", 1, 1)),
        bound_(one.args.get_number("bound", 0, 0)),
        fault_(one.args.get_text("fault", "")),
        parts_(one.args.get_list("parts", {"equivalence", "memory", "resume", "rates"})),
        shards_(one.args.get_list("shards", {"optimizer", "full"})),
        ranks_(open_ranks(one, 2)),
        arms_(one, steps_) {
    static const std::vector<std::string> kFaults = {"", "other_weights", "kept_whole",
                                                     "lost_position", "fast_links"};
    if (std::ranges::find(kFaults, fault_) == kFaults.end())
      throw ConfigError(
          "args.fault must be other_weights, kept_whole, lost_position or fast_links, got '" +
          fault_ + "'");
    // Ranks on one machine share its cores.
    const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
    at::set_num_threads(static_cast<int>(std::max<int64_t>(1, cores / world())));
    train::watch_tensor_memory(one.device, 0);
  }

  std::string run() {
    for (const std::string& part : parts_) {
      if (part == "equivalence") {
        compare_equivalence();
      } else if (part == "memory") {
        compare_memory();
      } else if (part == "resume") {
        resume_all();
      } else if (part == "rates") {
        measure_rates();
      } else {
        throw ConfigError("args.parts must name equivalence, memory, resume or rates, got '" +
                          part + "'");
      }
    }
    ranks_.group->leave();
    return "";
  }

 private:
  int64_t world() const { return ranks_.place.world; }

  /// An arm on all ranks.
  ShardedArm arm(const std::string& shard) const {
    return {.shard = fault_ == "kept_whole" ? "none" : shard,
            .ranks = ranks_.group.get(),
            .batch = rows_,
            .last_step = steps_,
            .other_weights = fault_ == "other_weights" && shard != "none"};
  }

  ShardedArm keeping(const std::string& shard) const {
    ShardedArm kept = arm(shard);
    kept.keep_values = true;
    return kept;
  }

  void compare_equivalence() {
    const ShardedOutcome whole = arms_.train(keeping("none"));
    for (const std::string& shard : shards_) {
      const OutcomeDifference found = difference_of(whole, arms_.train(keeping(shard)));
      judge("equal/" + shard + ".loss", found.loss, bound_);
      judge("equal/" + shard + ".parameters", found.parameters, bound_);
    }
  }

  /// A check of the largest difference on any rank.
  void judge(const std::string& id, double here, double bound) {
    const std::vector<double> all = of_ranks(here);
    const bool same = std::ranges::all_of(all, [&](double each) { return each <= bound; });
    double largest = 0;
    for (const double each : all) largest = larger_or_nan(largest, each);
    if (reports())
      one_.emitter.check({.case_id = one_.id,
                          .id = id,
                          .ok = same,
                          .code = same ? "" : "SHARDING_DIFFERS",
                          .detail = difference_text(largest)});
  }

  std::vector<double> of_ranks(double here) const {
    const at::Tensor all = at::zeros({world()}, at::device(one_.device).dtype(at::kDouble));
    all[ranks_.place.rank] = here;
    ranks_.group->sum(all);
    const at::Tensor host = all.cpu();
    return {host.const_data_ptr<double>(), host.const_data_ptr<double>() + world()};
  }

  void compare_memory() {
    json rows = json::array();
    double whole = 0;
    std::vector<std::string> shards = shards_;
    shards.emplace(shards.begin(), "none");
    for (const std::string& shard : shards) {
      const ShardedOutcome outcome = arms_.train(arm(shard));
      const std::vector<double> peaks = of_ranks(outcome.peak_mib);
      const double largest = *std::ranges::max_element(peaks);
      if (shard == "none") whole = largest;
      ShardedArm asked = arm(shard);
      asked.shard = shard;  // what was asked for counts, with the fault, too
      const double predicted = arms_.predicted_mib(asked);
      for (size_t rank = 0; rank < peaks.size(); ++rank)
        rows.push_back({shard, rank, predicted, peaks[rank]});
      metric(shard + ".predicted_mib", predicted, "mib");
      metric(shard + ".peak_mib", largest, "mib");
      metric(shard + ".unpredicted_ratio", largest / predicted, "ratio");
      if (shard != "none") metric(shard + ".of_whole_ratio", largest / whole, "ratio");
    }
    if (reports())
      one_.emitter.table({.case_id = one_.id,
                          .id = "memory_by_rank",
                          .title = "Memory of a rank's tensors",
                          .columns = {"shard", "rank", "predicted, MiB", "measured, MiB"},
                          .rows = rows});
  }

  void resume_all() {
    const ShardedOutcome whole = arms_.train(keeping("none"));
    const ShardedOutcome sharded = arms_.train(keeping("full"));
    resume(world(), world(), sharded, 0);
    resume(world(), 1, whole, bound_);
    if (world() == 2 || world() % 2 != 0) return;
    resume(world(), world() / 2, whole, bound_);
    resume(world() / 2, world(), whole, bound_);
  }

  /// The first `from` ranks train half of the steps, the first `to` the others.
  void resume(int64_t from, int64_t to, const ShardedOutcome& reference, double bound) {
    const std::string name = std::to_string(from) + "_to_" + std::to_string(to);
    const std::filesystem::path folder = std::filesystem::path(one_.in.out) / ("resume_" + name);
    if (reports()) remove_checkpoints(folder);  // of an attempt that was cut off
    ranks_.group->barrier();
    train_part(from, name + " before", steps_ / 2, folder, /*resume=*/false);
    const OutcomeDifference found =
        difference_or_none(reference, train_part(to, name + " behind", steps_, folder, true));
    judge("resume/" + name + ".loss", found.loss, bound);
    judge("resume/" + name + ".parameters", found.parameters, bound);
    if (reports()) remove_checkpoints(folder);
  }

  static void remove_checkpoints(const std::filesystem::path& folder) {
    std::error_code ignored;
    for (const int64_t step : train::checkpoint_steps(folder))
      train::remove_folder(train::sharded_checkpoint_path(folder, step), ignored);
    train::remove_folder(folder, ignored);
  }

  /// By the first `size` ranks; nothing on the others.
  std::optional<ShardedOutcome> train_part(int64_t size, const std::string& name, int64_t last_step,
                                           const std::filesystem::path& folder, bool resume) {
    std::optional<ShardedOutcome> outcome;
    if (ranks_.place.rank < size) {
      std::unique_ptr<train::RankGroup> part;
      if (size > 1 && size < world()) {
        std::vector<int64_t> members(static_cast<size_t>(size));
        std::iota(members.begin(), members.end(), 0);
        part = ranks_.group->subgroup(name, members);
      }
      ShardedArm half = keeping("full");
      half.ranks = size == 1 ? nullptr : part ? part.get() : ranks_.group.get();
      half.batch = rows_ * world() / size;
      half.last_step = last_step;
      half.checkpoints = folder.string();
      half.resume = resume;
      half.lost_position = resume && fault_ == "lost_position";
      outcome = arms_.train(half);
      if (part) part->leave();
    }
    ranks_.group->barrier();
    return outcome;
  }

  static OutcomeDifference difference_or_none(const ShardedOutcome& reference,
                                              const std::optional<ShardedOutcome>& outcome) {
    return outcome ? difference_of(reference, *outcome) : OutcomeDifference{};
  }

  /// Gathers and averages as large as those of a layer, and of one element; then a step without
  /// the others, and one with sharded parameters.
  void measure_rates() {
    const nsa::ModelConfig& model = arms_.model();
    const int64_t elements = train::layer_parameters(model) / world();
    const double bytes = static_cast<double>(4 * elements * (world() - 1));  // that a rank sends
    const double gather_ms = collective_ms(elements, true);
    const double average_ms = collective_ms(elements, false);
    const double message_ms = collective_ms(1, true) / static_cast<double>(world() - 1);
    // Fault fast_links: a hundred times what was measured.
    const double factor = fault_ == "fast_links" ? 100 : 1;
    const train::LinkRates here{.gather_gb_s = factor * bytes / (gather_ms * kNsOfMs),
                                .average_gb_s = factor * bytes / (average_ms * kNsOfMs),
                                .message_us = 1e3 * message_ms / factor};
    ShardedArm alone = arm("none");
    alone.ranks = nullptr;
    const ShardedOutcome one = arms_.train(alone), sharded = arms_.train(arm("full"));
    const double compute_ms = ranks_.mean(one.compute_ms);
    const double linear_pct = 100 * ranks_.mean(one.step_ms) / ranks_.mean(sharded.step_ms);
    const auto parameters = static_cast<double>(4 * train::count_parameters(model));
    const train::ShardedWork work{.parameter_bytes = parameters,
                                  .gradient_bytes = parameters,
                                  .units = model.num_layers + (model.tied_head ? 1 : 2),
                                  .compute_ms = compute_ms,
                                  .overlaps = one_.device.is_cuda()};
    predict(work, here);
    const double here_pct = train::plan_communication(work, here, world()).linear_pct;
    metric("model.here_pct", here_pct, "pct");
    metric("model.optimism_ratio", here_pct / linear_pct, "ratio");
    metric("rates.gather_gb_s", here.gather_gb_s, "gb_s");
    metric("rates.average_gb_s", here.average_gb_s, "gb_s");
    metric("rates.message_us", here.message_us, "us");
    metric("rates.compute_ms", compute_ms, "ms");
    metric("rates.linear_pct", linear_pct, "pct");
  }

  /// Median time of a collective of `elements` fp32 values of each rank, mean of the ranks.
  double collective_ms(int64_t elements, bool gather) {
    const auto options = at::device(one_.device).dtype(at::kFloat);
    const at::Tensor shard = at::zeros({elements}, options);
    const at::Tensor whole = at::zeros({elements * world()}, options);
    const train::ShardCollectives collectives(*ranks_.group, log_, 0, false);
    EventTimer timer(one_.device);
    std::vector<double> times;
    for (int64_t call = 0; call < kRateCalls; ++call) {
      ranks_.group->barrier();
      timer.start();
      (gather ? collectives.gather(whole, shard, "rates")
              : collectives.average(whole, shard, "rates"))
          ->wait();
      times.push_back(timer.stop_ms());
    }
    std::ranges::nth_element(times, times.begin() + kRateCalls / 2);
    return ranks_.mean(times[kRateCalls / 2]);
  }

  void predict(const train::ShardedWork& work, const train::LinkRates& here) {
    const double network = one_.args.get_number("network_gb_s", 0, 0);
    const double network_us = one_.args.get_number("network_us", 0, 0);
    const train::LinkRates between{.gather_gb_s = network > 0 ? network : here.gather_gb_s,
                                   .average_gb_s = network > 0 ? network : here.average_gb_s,
                                   .message_us = network_us > 0 ? network_us : here.message_us};
    const auto plans = train::plan_communication_up_to(
        work, here, between, one_.args.get_int("node_ranks", 8, 1), kMostRanks);
    const train::CommunicationPlan* first = train::first_limited(plans);
    json rows = json::array();
    for (const train::CommunicationPlan& plan : plans)
      rows.push_back({plan.ranks, plan.transfer_ms, plan.latency_ms, plan.exposed_ms, plan.step_ms,
                      plan.linear_pct, plan.limit});
    if (!reports()) return;
    one_.emitter.table(
        {.case_id = one_.id,
         .id = "more_ranks",
         .title = "A micro-batch on more ranks, predicted from the rates measured here: " +
                  (first != nullptr ? first->limit + " limits it from " +
                                          std::to_string(first->ranks) + " ranks on"
                                    : "nothing but computing limits it"),
         .columns = {"ranks", "bytes, ms", "messages, ms", "exposed, ms", "micro-batch, ms",
                     "of linear, %", "limit"},
         .rows = rows});
    one_.emitter.metric({.case_id = one_.id,
                         .name = "model.limit_ranks_count",
                         .value = first != nullptr ? json(first->ranks) : json(),
                         .unit = "count",
                         .reason = first != nullptr ? "" : "communication limits none up to 1024"});
    metric("model.x1024_pct", plans.back().linear_pct, "pct");
    metric("model.points_count", static_cast<double>(plans.size()), "count");
  }

  void metric(const std::string& name, double value, const std::string& unit) {
    if (reports())
      one_.emitter.metric({.case_id = one_.id, .name = name, .value = value, .unit = unit});
  }

  bool reports() const { return ranks_.reports(); }

  const PhaseCase& one_;
  int64_t steps_, rows_;
  double bound_;
  std::string fault_;
  std::vector<std::string> parts_, shards_;
  PhaseRanks ranks_;
  ShardedArms arms_;
  train::CollectiveLog log_;
};

}  // namespace

std::string run_sharded_training(const PhaseCase& one) { return ShardedTraining(one).run(); }

}  // namespace suites

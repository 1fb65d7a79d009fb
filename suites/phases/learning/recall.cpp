// Multi-query associative recall: dense attention, NSA and NSA without a branch trained on the same
// rows from the same first weights, over several seeds, and asked for kept-out rows.
#include "nsa/train/tasks/recall.h"

#include <map>

#include "nsa/model/attention_variant.h"
#include "suites/phases/learning/learning_faults.h"
#include "suites/phases/learning/task_corpus_folder.h"
#include "suites/phases/learning/task_training.h"
#include "suites/phases/training_phases.h"

namespace suites {
namespace {

/// Accuracy that dense attention must pass before another one is held against it, percent.
constexpr double kDenseLearned = 90;
constexpr const char* kDense = "dense";
constexpr const char* kWhole = "nsa";

/// The rows of one seed; kept-out ones have different pairs only.
std::unique_ptr<TaskCorpusFolder> recall_rows(const nsa::train::RecallSizes& sizes,
                                              const nsa::train::TaskRows& rows) {
  nsa::train::RecallSizes kept_out = sizes;
  kept_out.least_pairs = 0;
  return std::make_unique<TaskCorpusFolder>("recall_" + std::to_string(rows.seed),
                                            *nsa::train::make_recall(sizes), rows,
                                            nsa::train::make_recall(kept_out).get());
}

class RecallPhase {
 public:
  explicit RecallPhase(const PhaseCase& one)
      : one_(one),
        variants_(one.args.get_list("attention", {"dense", "nsa", "no_selected"})),
        seeds_(one.args.get_int("seeds", 2, 1)),
        threads_(one.args.get_int("threads", 2, 1)),
        training_{.steps = one.args.get_int("steps", 1500, 1),
                  .batch = one.args.get_int("batch", 32, 1),
                  .warmup = one.args.get_int("warmup", 50, 0),
                  .lr = one.args.get_number("lr", 1e-3, 0),
                  .weight_decay = one.args.get_number("weight_decay", 0.1, 0),
                  .val_rows = one.args.get_int("val_rows", 512, 1)},
        sizes_{.seq_len = one.args.get_int("S", 48, 1),
               .pairs = one.args.get_int("pairs", 4, 1),
               .vocab = one.args.get_int("vocab", 32, 4),
               .lead = one.args.get_int("lead", 0, 0),
               .gap = one.args.get_int("gap", 16, 0),
               .power = one.args.get_number("power", 0.01, 0),
               .least_pairs = one.args.get_int("least_pairs", 1, 0),
               .random_fill = one.args.get_bool("random_fill", false)} {
    config_ = nsa::load_model_config(one.args.get_text("model", "recall_cpu"),
                                     nsa::model_config_folders());
    config_.seq_len = sizes_.seq_len;
  }

  std::string run() {
    for (int64_t i = 0; i < seeds_; ++i) {
      const uint64_t seed = one_.seed() + static_cast<uint64_t>(i);
      rows_.push_back(
          recall_rows(sizes_, nsa::train::TaskRows{.train = one_.args.get_int("rows", 50000, 1),
                                                   .val = training_.val_rows,
                                                   .seed = seed}));
      for (const std::string& variant : variants_) arms_.push_back({variant, i, seed});
    }
    results_.resize(arms_.size());
    train_arms(arms_.size(), threads_, [&](size_t i) {
      results_[i] = train(arms_[i]);
      emit_pct(arms_[i].variant + ".accuracy_pct", results_[i].accuracy_pct);
    });
    report();
    return "";
  }

 private:
  struct Arm {
    std::string variant;
    int64_t index = 0;  ///< of the seed
    uint64_t seed = 0;
  };

  TaskResult train(const Arm& arm) {
    const TaskCorpusFolder& rows = *rows_[static_cast<size_t>(arm.index)];
    TaskArm task{.name = arm.variant + ", seed " + std::to_string(arm.seed),
                 .config = nsa::with_attention(config_, arm.variant),
                 .seed = arm.seed,
                 .train_rows = rows.train.get(),
                 .kept_out = rows.kept_out.get()};
    if (arm.variant != kDense) inject_learning_fault(task, one_.args.get_text("fault", ""));
    return train_on_task(task, training_, one_);
  }

  void emit_pct(const std::string& name, std::optional<double> value,
                const std::string& reason = "") {
    one_.emitter.metric({.case_id = one_.id,
                         .name = name,
                         .value = value ? nlohmann::json(*value) : nlohmann::json(),
                         .unit = "pct",
                         .reason = reason});
  }

  void report() {
    nlohmann::json table = nlohmann::json::array();
    std::map<std::pair<std::string, int64_t>, double> accuracy;
    for (size_t i = 0; i < arms_.size(); ++i) {
      const TaskResult& r = results_[i];
      accuracy[{arms_[i].variant, arms_[i].index}] = r.accuracy_pct;
      table.push_back({arms_[i].variant, arms_[i].seed, r.accuracy_pct, r.loss_nat, r.tokens,
                       std::lround(r.seconds)});
    }
    compare(accuracy);
    one_.emitter.table(
        {.case_id = one_.id,
         .id = "recall",
         .title = "Answers of kept-out rows: " + rows_.front()->kept_out->describe(),
         .columns = {"attention", "seed", "right, %", "loss, nat", "tokens trained on", "seconds"},
         .rows = table});
  }

  /// How far NSA is behind dense attention of the same seed, where that learned the task.
  void compare(const std::map<std::pair<std::string, int64_t>, double>& accuracy) {
    int64_t compared = 0;
    for (int64_t i = 0; i < seeds_; ++i) {
      const auto dense = accuracy.find({kDense, i}), whole = accuracy.find({kWhole, i});
      if (dense == accuracy.end() || whole == accuracy.end()) continue;
      const bool learned = dense->second > kDenseLearned;
      compared += learned ? 1 : 0;
      emit_pct("nsa.behind_pct",
               learned ? std::optional(dense->second - whole->second) : std::nullopt,
               learned ? "" : "dense attention did not learn the task: it cannot tell NSA's fault");
    }
    one_.emitter.metric(
        {.case_id = one_.id, .name = "seeds.compared_count", .value = compared, .unit = "count"});
  }

  const PhaseCase& one_;
  std::vector<std::string> variants_;
  int64_t seeds_, threads_;
  TaskTraining training_;
  nsa::train::RecallSizes sizes_;
  nsa::ModelConfig config_;
  std::vector<std::unique_ptr<TaskCorpusFolder>> rows_;
  std::vector<Arm> arms_;
  std::vector<TaskResult> results_;
};

}  // namespace

std::string run_recall(const PhaseCase& one) { return RecallPhase(one).run(); }

}  // namespace suites

// Pass-key retrieval: dense attention and NSA trained on rows of one length, then asked for a
// number at several depths of rows of several lengths.
#include <algorithm>
#include <cmath>

#include "nsa/model/attention_variant.h"
#include "nsa/train/tasks/pass_key.h"
#include "suites/phases/learning/learning_faults.h"
#include "suites/phases/learning/task_corpus_folder.h"
#include "suites/phases/learning/task_training.h"
#include "suites/phases/training_phases.h"

namespace suites {
namespace {

/// Accuracy of dense attention from which on another one is held against it, percent.
constexpr double kDenseRetrieves = 99;
constexpr const char* kReference = "dense";
/// Rows that are read come from other seeds than those of training.
constexpr uint64_t kReadSeed = 1'000'003;

class RetrievalPhase {
 public:
  explicit RetrievalPhase(const PhaseCase& one)
      : one_(one),
        variants_(one.args.get_list("attention", {"dense", "nsa"})),
        lengths_(one.args.get_ints("lengths", {192, 256, 384}, 1)),
        depths_(one.args.get_ints("depths", {0, 25, 50, 75, 100}, 0)),
        seeds_(one.args.get_int("seeds", 1, 1)),
        threads_(one.args.get_int("threads", 2, 1)),
        digits_(one.args.get_int("digits", 5, 1)),
        first_tokens_(one.args.get_ints("first_S", {}, 1)),
        first_steps_(one.args.get_ints("first_steps", {}, 1)),
        training_{.steps = one.args.get_int("steps", 1000, 1),
                  .batch = one.args.get_int("batch", 16, 1),
                  .warmup = one.args.get_int("warmup", 50, 0),
                  .lr = one.args.get_number("lr", 1e-3, 0),
                  .weight_decay = one.args.get_number("weight_decay", 0.1, 0),
                  .val_rows = one.args.get_int("val_rows", 64, 1)} {
    config_ = nsa::load_model_config(one.args.get_text("model", "recall_cpu"),
                                     nsa::model_config_folders());
    config_.seq_len = one.args.get_int("S", 256, 1);
    if (first_tokens_.size() != first_steps_.size())
      throw ConfigError("args.first_steps must be " + std::to_string(first_tokens_.size()) +
                        " numbers, one for each of first_S, got " +
                        std::to_string(first_steps_.size()));
    least_tokens_ = one.args.get_int("least_S", 0, 0);
    const double later = one.args.get_number("later_lr", 0, 0);
    if (later > 0 && first_tokens_.empty())
      throw ConfigError(
          "args.later_lr must be 0 without first_S, where no rows follow shorter ones, got " +
          std::to_string(later));
    first_lr_ = training_.lr;
    if (later > 0) training_.lr = later;
  }

  std::string run() {
    for (int64_t i = 0; i < seeds_; ++i) {
      const uint64_t seed = one_.seed() + static_cast<uint64_t>(i);
      make_rows(seed);
      for (const std::string& variant : variants_)
        arms_.push_back({variant, static_cast<size_t>(i), seed});
    }
    results_.resize(arms_.size());
    train_arms(arms_.size(), threads_, [&](size_t i) {
      results_[i] = train(arms_[i]);
      emit_value(arms_[i].variant + ".trained_pct", results_[i].accuracy_pct, "pct");
    });
    for (const std::string& variant : variants_) report(variant);
    compare();
    return "";
  }

 private:
  struct Arm {
    std::string variant;
    size_t index = 0;  ///< of the seed
    uint64_t seed = 0;
  };
  struct Rows {
    std::unique_ptr<TaskCorpusFolder> trained;
    std::vector<std::unique_ptr<TaskCorpusFolder>> first = {};  ///< of each of first_S
    std::vector<std::unique_ptr<TaskCorpusFolder>> cells =
        {};  ///< length by length, depth by depth
  };

  std::unique_ptr<TaskCorpusFolder> corpus(const std::string& name, int64_t seq_len, int64_t depth,
                                           const nsa::train::TaskRows& rows,
                                           int64_t least = 0) const {
    nsa::train::PassKeySizes sizes{
        .seq_len = seq_len, .digits = digits_, .depth_pct = depth, .least_seq_len = least};
    const auto trained = nsa::train::make_pass_key(sizes);
    sizes.least_seq_len = 0;
    return std::make_unique<TaskCorpusFolder>("pass_key_" + std::to_string(rows.seed) + name,
                                              *trained, rows,
                                              nsa::train::make_pass_key(sizes).get());
  }

  /// Where the question of a row to train on ends at the least, 0: always at its last token. Those
  /// that follow shorter rows are for the distances that these have not.
  int64_t least_of(int64_t seq_len) const {
    const bool first = first_tokens_.empty() || seq_len == first_tokens_.front();
    return first || least_tokens_ == 0 ? least_tokens_ : std::max(least_tokens_, seq_len / 4);
  }

  /// Rows to train on, as many as are read.
  std::unique_ptr<TaskCorpusFolder> training_rows(const std::string& name, int64_t seq_len,
                                                  int64_t steps, uint64_t seed) const {
    const int64_t most = steps * batch_of(seq_len);
    return corpus(name, seq_len, /*depth=*/-1,
                  {.train = std::min(most, one_.args.get_int("rows", 20000, 1)),
                   .val = training_.val_rows,
                   .seed = seed},
                  least_of(seq_len));
  }

  /// Rows of a step that has as many tokens as one of `S`.
  int64_t batch_of(int64_t seq_len) const {
    return std::max<int64_t>(1, training_.batch * config_.seq_len / seq_len);
  }

  void make_rows(uint64_t seed) {
    Rows rows{.trained = training_rows("", config_.seq_len, training_.steps, seed)};
    for (size_t i = 0; i < first_tokens_.size(); ++i)
      rows.first.push_back(
          training_rows("_first_" + std::to_string(i), first_tokens_[i], first_steps_[i], seed));
    for (const int64_t length : lengths_)
      for (const int64_t depth : depths_)
        rows.cells.push_back(
            corpus("_" + std::to_string(length) + "_" + std::to_string(depth), length, depth,
                   {.train = 1, .val = training_.val_rows, .seed = seed + kReadSeed}));
    rows_.push_back(std::move(rows));
  }

  TaskResult train(const Arm& arm) {
    const Rows& rows = rows_[arm.index];
    TaskArm task{.name = arm.variant + ", seed " + std::to_string(arm.seed),
                 .config = nsa::with_attention(config_, arm.variant),
                 .seed = arm.seed,
                 .train_rows = rows.trained->train.get(),
                 .kept_out = rows.trained->kept_out.get()};
    for (size_t i = 0; i < rows.first.size(); ++i)
      task.first.push_back({rows.first[i]->train.get(), first_tokens_[i],
                            batch_of(first_tokens_[i]), first_steps_[i],
                            i == 0 ? first_lr_ : training_.lr});
    for (size_t i = 0; i < rows.cells.size(); ++i)
      task.other_rows.push_back({rows.cells[i]->kept_out.get(), lengths_[i / depths_.size()]});
    if (arm.variant != kReference) inject_learning_fault(task, one_.args.get_text("fault", ""));
    return train_on_task(task, training_, one_);
  }

  void emit_value(const std::string& name, const nlohmann::json& value, const std::string& unit) {
    one_.emitter.metric({.case_id = one_.id, .name = name, .value = value, .unit = unit});
  }

  /// Its cells, the least of the seeds each.
  void report(const std::string& variant) {
    std::vector<double> least(lengths_.size() * depths_.size(), 100);
    for (size_t i = 0; i < arms_.size(); ++i) {
      if (arms_[i].variant != variant) continue;
      for (size_t cell = 0; cell < least.size(); ++cell) {
        const double here = results_[i].other_pct[cell];
        if (std::isnan(here) || here < least[cell]) least[cell] = here;
      }
    }
    std::vector<std::string> columns = {"tokens of a row by text before the number, % of all"};
    for (const int64_t depth : depths_) columns.push_back(std::to_string(depth));
    nlohmann::json table = nlohmann::json::array();
    for (size_t row = 0; row < lengths_.size(); ++row) {
      nlohmann::json cells = {lengths_[row]};
      for (size_t i = 0; i < depths_.size(); ++i) cells.push_back(least[row * depths_.size() + i]);
      table.push_back(std::move(cells));
    }
    one_.emitter.table({.case_id = one_.id,
                        .id = variant + ".heat_map",
                        .title = "Digits that " + variant + " retrieves, %, the least of the seeds",
                        .columns = columns,
                        .rows = table});
  }

  /// What NSA retrieves in the cells in which dense attention of the same seed retrieves all.
  void compare() {
    int64_t compared = 0;
    for (const Arm& arm : arms_) {
      if (arm.variant != "nsa") continue;
      const auto* dense = result_of(kReference, arm.index);
      const auto* sparse = result_of("nsa", arm.index);
      if (dense == nullptr) continue;
      for (size_t cell = 0; cell < dense->other_pct.size(); ++cell) {
        if (!(dense->other_pct[cell] >= kDenseRetrieves)) continue;
        ++compared;
        emit_value("nsa.where_dense_pct", sparse->other_pct[cell], "pct");
      }
    }
    emit_value("cells.compared_count", compared, "count");
  }

  const TaskResult* result_of(const std::string& variant, size_t index) const {
    for (size_t i = 0; i < arms_.size(); ++i)
      if (arms_[i].variant == variant && arms_[i].index == index) return &results_[i];
    return nullptr;
  }

  const PhaseCase& one_;
  std::vector<std::string> variants_;
  std::vector<int64_t> lengths_, depths_;
  int64_t seeds_, threads_, digits_;
  std::vector<int64_t> first_tokens_, first_steps_;
  int64_t least_tokens_ = 0;
  double first_lr_ = 0;  ///< on the shortest rows; training_.lr on all others
  TaskTraining training_;
  nsa::ModelConfig config_;
  std::vector<Rows> rows_;
  std::vector<Arm> arms_;
  std::vector<TaskResult> results_;
};

}  // namespace

std::string run_retrieval(const PhaseCase& one) { return RetrievalPhase(one).run(); }

}  // namespace suites

// Language modelling: dense attention, NSA and variants of it trained on the same text from the
// same first weights, over several seeds, and held against each other by the loss of kept-out text.
#include <algorithm>
#include <cmath>
#include <map>

#include "nsa/train/data/corpus_folder.h"
#include "suites/phases/learning/learning_faults.h"
#include "suites/phases/learning/size_variants.h"
#include "suites/phases/learning/task_training.h"
#include "suites/phases/learning/trained_gates.h"
#include "suites/phases/training_phases.h"

namespace suites {
namespace {

constexpr const char* kBaselineVariant = "dense";
constexpr const char* kJudgedVariant = "nsa";
/// The same kept-out rows for every seed: what differs between seeds is the training.
constexpr uint64_t kKeptOutSeed = 1'000'003;
constexpr int64_t kRowsOfGates = 8;

class ValidationPhase {
 public:
  explicit ValidationPhase(const PhaseCase& one)
      : one_(one),
        variants_(one.args.get_list("attention", {"dense", "nsa"})),
        seeds_(one.args.get_int("seeds", 5, 1)),
        threads_(one.args.get_int("threads", 2, 1)),
        data_(one.args.get_text("data", "local_text")),
        root_(nsa::train::corpus_folder(one.args.get_text("data_root", ".data"), data_)),
        training_{.steps = one.args.get_int("steps", 600, 1),
                  .batch = one.args.get_int("batch", 8, 1),
                  .warmup = one.args.get_int("warmup", 20, 0),
                  .lr = one.args.get_number("lr", 3e-3, 0),
                  .weight_decay = one.args.get_number("weight_decay", 0.1, 0),
                  .val_rows = one.args.get_int("val_rows", 256, 1)} {
    config_ =
        nsa::load_model_config(one.args.get_text("model", "tiny_cpu"), nsa::model_config_folders());
    if (const int64_t tokens = one.args.get_int("S", 0, 0); tokens > 0) config_.seq_len = tokens;
    for (const std::string& variant : variants_) with_variant(config_, variant);  // refused early
    kept_out_ = open(kKeptOutSeed, nsa::train::kValidationSplit);
  }

  std::string run() {
    for (int64_t i = 0; i < seeds_; ++i) {
      const uint64_t seed = one_.seed() + static_cast<uint64_t>(i);
      rows_.push_back(open(seed, nsa::train::kTrainSplit));
      for (const std::string& variant : variants_) arms_.push_back({variant, i, seed});
    }
    results_.resize(arms_.size());
    train_arms(arms_.size(), threads_, [&](size_t i) {
      results_[i] = train(arms_[i]);
      emit_nat(arms_[i].variant + ".loss_nat", results_[i].loss_nat);
    });
    compare();
    report();
    return "";
  }

 private:
  struct Arm {
    std::string variant;
    int64_t index = 0;  ///< of the seed
    uint64_t seed = 0;
  };

  std::unique_ptr<nsa::train::TokenSource> open(uint64_t seed, const char* split) const {
    return nsa::train::open_corpus_source(root_, data_, seed, config_.seq_len + 1, training_.batch,
                                          split);
  }

  TaskResult train(const Arm& arm) {
    TaskArm task{.name = arm.variant + ", seed " + std::to_string(arm.seed),
                 .config = with_variant(config_, arm.variant),
                 .seed = arm.seed,
                 .train_rows = rows_[static_cast<size_t>(arm.index)].get(),
                 .kept_out = kept_out_.get()};
    if (arm.variant == kJudgedVariant && arm.index == 0)
      task.look = [this](nsa::Decoder& model) {
        gates_ = gates_by_layer(model, *kept_out_, std::min(kRowsOfGates, training_.val_rows),
                                config_.seq_len, one_.device);
      };
    if (arm.variant != kBaselineVariant)
      inject_learning_fault(task, one_.args.get_text("fault", ""));
    return train_on_task(task, training_, one_);
  }

  void emit_nat(const std::string& name, double value) {
    one_.emitter.metric({.case_id = one_.id, .name = name, .value = value, .unit = "nat"});
  }

  /// Loss of each variant less that of dense attention with the same seed.
  void compare() {
    std::map<int64_t, double> dense;
    for (size_t i = 0; i < arms_.size(); ++i)
      if (arms_[i].variant == kBaselineVariant) dense[arms_[i].index] = results_[i].loss_nat;
    int64_t compared = 0;
    for (size_t i = 0; i < arms_.size(); ++i) {
      const auto reference = dense.find(arms_[i].index);
      if (arms_[i].variant == kBaselineVariant || reference == dense.end()) continue;
      emit_nat(arms_[i].variant + ".gap_nat", results_[i].loss_nat - reference->second);
      compared += arms_[i].variant == kJudgedVariant ? 1 : 0;
    }
    one_.emitter.metric(
        {.case_id = one_.id, .name = "seeds.compared_count", .value = compared, .unit = "count"});
  }

  void report() {
    nlohmann::json table = nlohmann::json::array();
    for (size_t i = 0; i < arms_.size(); ++i)
      table.push_back({arms_[i].variant, arms_[i].seed, results_[i].loss_nat,
                       results_[i].accuracy_pct, results_[i].tokens,
                       std::lround(results_[i].seconds)});
    one_.emitter.table(
        {.case_id = one_.id,
         .id = "validation",
         .title = "Text that no model was trained on: " + kept_out_->describe(),
         .columns = {"attention", "seed", "loss, nat", "right, %", "tokens trained on", "seconds"},
         .rows = table});
    if (gates_.empty()) return;
    nlohmann::json gates = nlohmann::json::array();
    for (const LayerGates& row : gates_)
      gates.push_back({row.layer, std::to_string(row.first) + " to " + std::to_string(row.last),
                       row.mean[0], row.mean[1], row.mean[2]});
    one_.emitter.table({.case_id = one_.id,
                        .id = "gates",
                        .title = "Mean gates of NSA by layer and place in a row, first seed",
                        .columns = {"layer", "tokens", "compressed", "selected", "window"},
                        .rows = gates});
  }

  const PhaseCase& one_;
  std::vector<std::string> variants_;
  int64_t seeds_, threads_;
  std::string data_;
  std::filesystem::path root_;
  TaskTraining training_;
  nsa::ModelConfig config_;
  std::unique_ptr<nsa::train::TokenSource> kept_out_;
  std::vector<std::unique_ptr<nsa::train::TokenSource>> rows_;
  std::vector<Arm> arms_;
  std::vector<TaskResult> results_;
  std::vector<LayerGates> gates_;
};

}  // namespace

std::string run_validation(const PhaseCase& one) { return ValidationPhase(one).run(); }

}  // namespace suites

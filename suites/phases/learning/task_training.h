#pragma once
#include <functional>
#include <string>
#include <vector>

#include "nsa/model/model_config.h"
#include "nsa/train/data/token_source.h"
#include "nsa/train/loop/trainer.h"
#include "suites/phases/phase.h"

namespace suites {

/// How long and with what steps a small model is trained on a task.
struct TaskTraining {
  int64_t steps = 0, batch = 0, warmup = 0;
  double lr = 0, weight_decay = 0;
  int64_t val_rows = 0;  ///< kept-out rows that are looked at behind the last step
};

/// Changes the parts of a trainer before it is made; `batch`: its rows, of config.seq_len tokens.
using TaskChange =
    std::function<void(nsa::train::TrainerParts&, const nsa::ModelConfig& config, int64_t batch)>;

/// Rows of another length that a trained model is asked for.
struct OtherRows {
  const nsa::train::TokenSource* rows = nullptr;
  int64_t seq_len = 0;
};

/// Shorter rows that a model is trained on before those of its own, with warm-up, peak and decay of
/// the learning rate of their own.
struct FirstRows {
  const nsa::train::TokenSource* rows = nullptr;
  int64_t seq_len = 0, batch = 0, steps = 0;
  double lr = 0;
};

/// A model beside others that differ in one thing.
struct TaskArm {
  std::string name;  ///< of its line in plots
  nsa::ModelConfig config;
  uint64_t seed = 1;  ///< of first weights and of the order of rows
  const nsa::train::TokenSource* train_rows = nullptr;
  const nsa::train::TokenSource* kept_out = nullptr;
  std::vector<FirstRows> first = {};       ///< one after the other
  std::vector<OtherRows> other_rows = {};  ///< `val_rows` of each, beside those kept out
  TaskChange change = {};                  ///< an injected fault; may be empty
  /// Looks at the trained model; may be empty.
  std::function<void(nsa::Decoder& model)> look = {};
};

struct TaskResult {
  double accuracy_pct = 0;             ///< of the answers of kept-out rows
  double loss_nat = 0;                 ///< the same rows
  std::vector<double> other_pct = {};  ///< right answers of each of `other_rows`
  int64_t tokens = 0;                  ///< trained on, the first rows among them
  double seconds = 0;
};

/// Whether a heartbeat is due behind `step` (1-based) of `steps`, `silence_s` after the case's last
/// line: behind each hundredth of the steps and the last, and wherever more than a second passed.
bool beat_is_due(int64_t step, int64_t steps, double silence_s);

/// A check for each branch, forward and backward, and the choice of blocks: the project's kernels
/// of the device did all of `ran`. Ids are path/STAGE/ARM.
std::vector<base::protocol::Check> kernel_checks(const PhaseCase& one,
                                                 const std::vector<nsa::RanBackend>& ran,
                                                 const std::string& arm);

/// Trains on the device of `one`, on the first rows and then on those of the model's length, and
/// looks at kept-out rows, then at those of other lengths, at the end; heartbeats, named after the
/// arm, tell of steps and of lengths that were read; an NSA model's kernel_checks follow. First
/// weights are drawn under a lock, so that arms may be trained by threads. Throws
/// std::runtime_error for a step that is not finite.
TaskResult train_on_task(const TaskArm& arm, const TaskTraining& training, const PhaseCase& one);

/// Calls train(0) .. train(count - 1), `threads` at a time. Rethrows the first exception when all
/// that had begun have ended; no other begins behind it.
void train_arms(size_t count, int64_t threads, const std::function<void(size_t)>& train);

}  // namespace suites

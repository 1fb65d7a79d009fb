#pragma once
#include <memory>
#include <string>
#include <vector>

#include "nsa/train/data/token_source.h"
#include "nsa/train/ranks/rank_group.h"
#include "nsa/train/run_parts.h"
#include "suites/phases/phase.h"

namespace suites {

/// One of the trainings that phase kind sharded_training compares.
struct ShardedArm {
  std::string shard = "none";              ///< none, optimizer or full
  nsa::train::RankGroup* ranks = nullptr;  ///< null: one process
  int64_t batch = 1;                       ///< rows of a rank
  int64_t last_step = 1;                   ///< of those that ShardedArms has
  std::string checkpoints = "";            ///< a folder; empty: none
  bool resume = false;                     ///< go on from there
  bool keep_values = false;                ///< of the parameters, in the outcome
  bool other_weights = false;              ///< fault: begins with other weights
  bool lost_position = false;              ///< fault: goes on with rows that are not the next ones
};

/// What one rank has of a parameter behind the last step.
struct KeptValues {
  size_t begin = 0;  ///< in the flattened parameter
  std::vector<double> values;
};

struct ShardedOutcome {
  std::vector<double> losses;    ///< of every step, those before a resumption included
  std::vector<KeptValues> kept;  ///< by parameter, if they were asked for
  double peak_mib = 0;           ///< of this rank's tensors
  double step_ms = 0;            ///< the shortest step
  double compute_ms = 0;         ///< the shortest forward and backward pass
};

/// Trains one arm after the other, with the same first weights, rows and schedule.
class ShardedArms {
 public:
  /// `steps`: of the schedule. Reads args model, S, dtype and backend of the case.
  ShardedArms(const PhaseCase& one, int64_t steps);

  /// Collective over the ranks of the arm. Nothing of its memory is left behind.
  ShardedOutcome train(const ShardedArm& arm) const;
  /// Memory of a rank's tensors, by formula.
  double predicted_mib(const ShardedArm& arm) const;
  const nsa::ModelConfig& model() const { return config_; }

 private:
  nsa::train::TrainOptions options_of(const ShardedArm& arm) const;

  const PhaseCase& one_;
  int64_t steps_, seq_len_;
  nsa::ModelConfig config_;
  nsa::SwitchSet switches_;
  nsa::NsaOptions attention_;
  std::unique_ptr<nsa::train::TokenSource> tokens_;
};

/// The larger one; NaN if one is NaN, unlike std::max.
double larger_or_nan(double a, double b);

/// The largest differences of two outcomes; NaN where one has NaN.
struct OutcomeDifference {
  double loss = 0, parameters = 0;
};
/// `whole` has every value that `other` has. Throws std::runtime_error where they are not
/// comparable.
OutcomeDifference difference_of(const ShardedOutcome& whole, const ShardedOutcome& other);

}  // namespace suites

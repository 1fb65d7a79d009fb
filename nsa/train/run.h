#pragma once
#include <atomic>
#include <functional>
#include <string>

#include "nsa/switches/switches.h"
#include "nsa/train/ranks/rank_place.h"
#include "nsa/train/record/result_lines.h"
#include "nsa/train/train_options.h"

namespace nsa::train {

struct TrainerParts;

/// Surroundings of a run: where its lines go, and how it is stopped.
struct RunContext {
  std::string case_id = "train";
  ResultLines* lines = nullptr;
  const SwitchSet* switches = nullptr;
  RankPlace place = {};            ///< rank 0 reports; the others report only how their case ended
  std::filesystem::path out = {};  ///< for files of the run; empty: none
  std::filesystem::path losses = {};  ///< CSV of the losses (loss_file.h); empty: none
  const std::atomic<int>* stop_signal =
      nullptr;  ///< non-zero: end after this step; the signal's number
  std::function<void(const std::string&)> print;            ///< one line for people
  std::function<void(const std::string&)> print_text = {};  ///< a model's, for option sample
  /// Exchanges or wraps parts of the trainer before it is made; empty: the usual ones.
  std::function<void(TrainerParts&)> exchange = {};
};

struct RunEnd {
  std::string failure;  ///< why the case failed; empty: it did not
  int64_t num_findings = 0;
};

/// Runs one case from data to its `case` line: opens the data, trains, judges the trace. What goes
/// wrong inside becomes a failed case with its reason, and figures that do not exist are null with
/// theirs. Throws only when a result line cannot be written.
RunEnd run_case(const TrainOptions& options, const RunContext& context);

/// Sets options of batches, gradient exchange and loader from the switches. An option that was
/// given stays where a switch is at its default.
void apply_switches(const SwitchSet& switches, TrainOptions& options);

}  // namespace nsa::train

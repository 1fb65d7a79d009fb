#pragma once
#include <vector>

#include "nsa/train/loop/trainer.h"
#include "nsa/train/loop/training_attention.h"
#include "nsa/train/memory/memory_plan.h"
#include "nsa/train/record/judge.h"
#include "nsa/train/run.h"

namespace nsa::train {

/// What a run leaves at its end, for its report.
struct EndedRun {
  const TrainOptions& options;
  const RunContext& context;
  const ModelConfig& config;
  const StepShape& shape;
  const TrainingAttention& attention;
  const Trainer* trainer = nullptr;  ///< null: it ended before it was made
  double tensors_peak_mib = 0;
  const std::vector<StepRecord>& trace;
  const std::vector<ContextLayers::Traffic>& context_traffic;
};

/// Writes tables, figures and checks of the run, and prints its losses; the findings of its checks
/// are the caller's. Adds to `facts` what ran and what memory was taken.
std::vector<Finding> report_run(const EndedRun& run, RunFacts& facts);

}  // namespace nsa::train

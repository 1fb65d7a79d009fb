#pragma once
#include <vector>

#include "nsa/train/record/judge.h"

namespace nsa::train {

/// Figures of the loader: loader.{warmup_enabled_bool, warmup_batches_count, warmup_s, start_ms,
/// first_batch_ms, overlap_count, stall_ratio}; empty with a reason where no batch was read.
std::vector<Figure> loader_figures(const LoaderTelemetry& loader,
                                   const std::vector<StepRecord>& trace);

/// LOADER_STALL (P17): the first batch came late, or the steps behind the first one waited for
/// their batches longer than a share of their time.
Check check_loader(const LoaderTelemetry& loader, const std::vector<StepRecord>& trace);

}  // namespace nsa::train

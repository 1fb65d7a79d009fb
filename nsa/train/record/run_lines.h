#pragma once
#include <string>
#include <vector>

#include "nsa/model/model_config.h"
#include "nsa/train/context/context_layers.h"
#include "nsa/train/loop/step_graph.h"
#include "nsa/train/loop/step_record.h"
#include "nsa/train/memory/memory_plan.h"
#include "nsa/train/ranks/rank_place.h"
#include "nsa/train/record/judge.h"
#include "nsa/train/record/result_lines.h"

/// Findings and tables of a run, beside the checks of judge.h.
namespace nsa::train {

/// Begins the reason of a case whose ranks were not all there.
inline constexpr const char* kRankFault = "RANK_FAULT: ";

/// `lost`: which rank, and how long, by the signs of life between ranks.
Finding lost_finding(const std::string& lost);
/// A rank that made no progress for `silence_s`.
Finding stall_finding(const RankPlace& place, double silence_s, const std::string& collective);
/// `where`: the first tensor of the step that is not finite.
Finding non_finite_finding(const std::string& where, int64_t step);
/// `reason` begins with kRankFault.
Finding rank_finding(const std::string& reason);

double median_step_ms(std::vector<StepRecord> trace);
/// One line for people; `of`: steps of the run.
std::string progress_line(const StepRecord& record, int64_t of, double median_step_ms);

/// The same of kept-out rows; `accuracy`: share of their targets.
std::string evaluation_line(int64_t step, int64_t of, double loss_nat, double accuracy);

/// What to tell of a run that did all steps of its schedule and goes on to `steps`; empty where the
/// schedule of `trace`, the steps so far, is that one or not known.
std::string extension_line(const std::vector<StepRecord>& trace, int64_t steps);

/// How steps were given to the device, as a row of what ran: "graph" or "launches".
PathRow step_path(const std::string& asked, const GraphUse& use, int64_t steps);

/// Tables of a case: which backend every stage ran; buckets beside the request; parts of the
/// memory as predicted and as measured (0: not known), of several ranks one by one, too; rates
/// that the model's configuration expects.
void emit_paths(ResultLines& lines, const std::string& case_id, const std::vector<PathRow>& paths);
void emit_buckets(ResultLines& lines, const std::string& case_id, const RunFacts& facts,
                  const ReducerOptions& asked);
void emit_memory(ResultLines& lines, const std::string& case_id, const MemoryPlan& plan,
                 double peak_mib, const std::vector<double>& rank_peaks_mib);
/// What ranks received that divide rows among them, beside the formula's; no table without any.
void emit_context_traffic(ResultLines& lines, const std::string& case_id,
                          const std::vector<ContextLayers::Traffic>& traffic);
void emit_expected(ResultLines& lines, const std::string& case_id, const ModelConfig& config);

}  // namespace nsa::train

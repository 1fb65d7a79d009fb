#include "nsa/train/record/run_lines.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "nsa/train/memory/mib.h"
#include "nsa/train/ranks/rank_agreement.h"

namespace nsa::train {

Finding stall_finding(const RankPlace& place, double silence_s, const std::string& collective) {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.1f", silence_s);
  return {"HANG",
          "rank " + std::to_string(place.rank) + " of " + std::to_string(place.world) +
              " made no progress for " + seconds + " s; last collective: " + collective,
          "steps.done_count", "another rank is dead, hangs, or took another path",
          "compare the last collectives of the ranks: the one that began less is to blame"};
}

Finding lost_finding(const std::string& lost) {
  return {"HANG", lost, "steps.done_count",
          "a rank is stopped or hangs, its machine is gone, or the ranks took different paths",
          "look at the rank named and its machine; continue with --resume"};
}

Finding non_finite_finding(const std::string& where, int64_t step) {
  return {
      "NON_FINITE", "step " + std::to_string(step) + ": " + where, "steps.done_count",
      "the named tensor is the first one that is not finite when the step is repeated",
      "look at the operation that produced it, with this step's learning rate and gradient norm"};
}

Finding rank_finding(const std::string& reason) {
  if (reason.starts_with(kUnlikeRanks))
    return {"RANK_FAULT", reason.substr(std::strlen(kRankFault)), "steps.done_count",
            "the ranks have other options, switches or corpora; together they train no one model",
            "start every rank with the same command line and environment"};
  return {"RANK_FAULT", reason.substr(std::strlen(kRankFault)), "steps.done_count",
          "the ranks are not all there",
          "look at the rank that ended first; continue with --resume"};
}

double median_step_ms(std::vector<StepRecord> trace) {
  const auto middle = trace.begin() + static_cast<std::ptrdiff_t>(trace.size() / 2);
  std::nth_element(trace.begin(), middle, trace.end(),
                   [](const auto& a, const auto& b) { return a.step_ms < b.step_ms; });
  return middle->step_ms;
}

std::string progress_line(const StepRecord& r, int64_t of, double median_step_ms) {
  char text[200], loss[32] = "none (no targets)", gates[64] = "";
  if (r.has_targets()) std::snprintf(loss, sizeof loss, "%.4f", r.loss);
  if (r.gate.known())
    std::snprintf(gates, sizeof gates, "  gates %.2f %.2f %.2f", r.gate.cmp, r.gate.sel,
                  r.gate.win);
  std::snprintf(text, sizeof text,
                "step %lld/%lld  loss %s  %.0f tok/s  lr %.2e  grad %.3f%s  eta %.0f s",
                static_cast<long long>(r.step), static_cast<long long>(of), loss, r.tok_s, r.lr,
                r.grad_norm, gates, median_step_ms / 1000 * static_cast<double>(of - r.step));
  return text;
}

std::string evaluation_line(int64_t step, int64_t of, double loss_nat, double accuracy) {
  char text[128];
  std::snprintf(text, sizeof text, "step %lld/%lld  loss of kept-out rows %.6f, right %.2f %%",
                static_cast<long long>(step), static_cast<long long>(of), loss_nat, 100 * accuracy);
  return text;
}

std::string extension_line(const std::vector<StepRecord>& trace, int64_t steps) {
  const int64_t before = trace.empty() ? 0 : trace.back().schedule_steps;
  if (before == 0 || before == steps) return "";
  return "extended from " + std::to_string(before) + " to " + std::to_string(steps) +
         " steps: from here on the learning rate is that of a schedule of " +
         std::to_string(steps) + " steps; a run of that length from the start ends elsewhere";
}

PathRow step_path(const std::string& asked, const GraphUse& use, int64_t steps) {
  const std::string graph = "graph", launches = "launches";
  return {.stage = "step",
          .requested = asked == "on"    ? graph
                       : asked == "off" ? launches
                                        : kAutoBackend,
          .ran = use.captured ? graph : launches,
          .detail = "",
          .reason = use.reason,
          .count = steps};
}

void emit_paths(ResultLines& lines, const std::string& case_id, const std::vector<PathRow>& paths) {
  nlohmann::json rows = nlohmann::json::array();
  for (const PathRow& p : paths)
    rows.push_back({p.stage, p.requested, p.ran, p.detail, p.count, p.reason});
  lines.table(case_id, "ran", "What ran, over all layers and steps",
              {"stage", "requested", "ran", "variant", "calls", "why"}, rows);
}

void emit_buckets(ResultLines& lines, const std::string& case_id, const RunFacts& facts,
                  const ReducerOptions& asked) {
  if (facts.ranks == 1) return;
  nlohmann::json rows = nlohmann::json::array();
  for (size_t i = 0; i < facts.bucket_bytes.size(); ++i)
    rows.push_back({i, static_cast<double>(facts.bucket_bytes[i]) / kMib, asked.bucket_mib,
                    asked.bf16 ? "bf16" : "none"});
  lines.table(case_id, "buckets", "Buckets of gradients as they were sent",
              {"bucket", "MiB", "cap asked for, MiB", "compression"}, rows);
}

void emit_memory(ResultLines& lines, const std::string& case_id, const MemoryPlan& plan,
                 double peak_mib, const std::vector<double>& rank_peaks_mib) {
  nlohmann::json rows = nlohmann::json::array();
  for (const MemoryPart& part : plan.parts) rows.push_back({part.name, part.mib});
  rows.push_back({"all of it, predicted", plan.total_mib()});
  rows.push_back({"tensors at their peak, measured",
                  peak_mib > 0 ? nlohmann::json(peak_mib) : nlohmann::json()});
  lines.table(case_id, "memory", "Memory of a step by formula, and as measured", {"part", "MiB"},
              rows);
  if (rank_peaks_mib.empty()) return;
  rows.clear();
  for (size_t rank = 0; rank < rank_peaks_mib.size(); ++rank)
    rows.push_back({rank, plan.total_mib(), rank_peaks_mib[rank]});
  lines.table(case_id, "memory_by_rank", "Memory of the tensors of each rank",
              {"rank", "predicted, MiB", "peak, measured, MiB"}, rows);
}

void emit_context_traffic(ResultLines& lines, const std::string& case_id,
                          const std::vector<ContextLayers::Traffic>& traffic) {
  if (traffic.empty()) return;
  nlohmann::json rows = nlohmann::json::array();
  for (const auto& row : traffic) rows.push_back({row.part, row.predicted_mib, row.received_mib});
  lines.table(case_id, "context", "What a rank receives of the rows that ranks divide, a layer",
              {"part", "by formula, MiB", "received, MiB"}, rows);
}

void emit_expected(ResultLines& lines, const std::string& case_id, const ModelConfig& config) {
  if (config.expected.empty()) return;
  nlohmann::json rows = nlohmann::json::array();
  for (const ExpectedRate& rate : config.expected)
    rows.push_back({rate.hardware, rate.low, rate.high, rate.source});
  lines.table(case_id, "expected", "Rates expected of this model",
              {"hardware", "from, tok/s", "to, tok/s", "source"}, rows);
}

}  // namespace nsa::train

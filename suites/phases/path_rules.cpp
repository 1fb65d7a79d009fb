#include "suites/phases/path_rules.h"

#include <map>

#include "suites/conformance/check.h"

namespace suites {
namespace {

using harness::trace::PathRule;

// Parts of kernel names.
constexpr const char* kOwnRows = "row_attention_kernel|selected_";  // by rows, by keys
constexpr const char* kOwnIntervals = "interval_attention_kernel";
// Few tiles have a kernel of their own, many go through that of the interval branches.
constexpr const char* kOwnTiles = "selected_dense|interval_attention_kernel";
constexpr const char* kFlash = "flash_fwd";
constexpr const char* kLibraryAttention = "flash_fwd|fmha|cudnn_generated|sdpa";
constexpr const char* kProducts = "gemm|gemv|nvjet|xmma|cutlass|dot_kernel";

/// Stage of a record -> range of the layer.
const char* range_of(const std::string& stage) {
  static const std::map<std::string, const char*> kRanges = {{"sel_attn", "nsa.sel_attn"},
                                                             {"win_attn", "nsa.win_attn"},
                                                             {"cmp_attn", "nsa.cmp_attn+select"}};
  const auto found = kRanges.find(stage);
  return found == kRanges.end() ? nullptr : found->second;
}

PathRule rule_of(const char* range, const std::string& backend, const std::string& detail) {
  const bool selected = std::string(range) == "nsa.sel_attn";
  if (backend == "fused") {
    const char* own = selected ? detail == "whole tiles" ? kOwnTiles : kOwnRows : kOwnIntervals;
    return {range, {own}, {kLibraryAttention, kProducts}};
  }
  if (backend == "flash" || (backend == "varlen" && detail == "flash"))
    return {range, {kFlash}, {kOwnRows, kOwnIntervals}};
  if (backend == "cudnn") return {range, {"cudnn|sdpa|fmha"}, {kOwnRows, kOwnIntervals}};
  return {range, {kProducts}, {kOwnRows, kOwnIntervals, kLibraryAttention}};
}

/// What was asked of a stage and what ran, several joined.
struct StageRun {
  std::string requested, ran, detail, reason;
  bool differs = false;
};

std::map<std::string, StageRun> by_stage(const std::vector<nsa::RanBackend>& ran) {
  std::map<std::string, StageRun> stages;
  for (const nsa::RanBackend& row : ran) {
    if (row.count == 0 || range_of(row.stage) == nullptr) continue;
    StageRun& stage = stages[row.stage];
    stage.requested = row.requested;
    stage.ran += (stage.ran.empty() ? "" : ", ") + row.backend +
                 (row.detail.empty() ? "" : " (" + row.detail + ")");
    stage.detail = row.detail;
    stage.differs = stage.differs || row.backend != row.requested;
    if (stage.reason.empty()) stage.reason = row.reason;
  }
  return stages;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

std::optional<PathRule> path_rule(const std::string& stage, const std::string& backend,
                                  const std::string& detail) {
  const char* range = range_of(stage);
  if (range == nullptr) return std::nullopt;
  return rule_of(range, backend, detail);
}

void prove_paths(const PhaseCase& one, const std::string& arm, const harness::trace::Trace& trace,
                 const harness::trace::Attribution& found, const std::vector<nsa::RanBackend>& ran,
                 nlohmann::json& rows) {
  for (const auto& [stage, run] : by_stage(ran)) {
    const auto rule = path_rule(stage, run.requested, run.detail);
    const auto proof = harness::trace::prove_path(trace, found, *rule);
    const bool ok = proof.ok && !run.differs;
    one.emitter.check({.case_id = one.id,
                       .id = "path/" + (arm.empty() ? "" : arm + "/") + stage,
                       .ok = ok,
                       .code = ok ? "" : code::kPathProof,
                       .detail = "requested " + run.requested + ", ran " + run.ran +
                                 (run.reason.empty() ? "" : " (" + run.reason + ")") + "; " +
                                 proof.detail});
    rows.push_back({arm, stage, run.requested, run.ran, joined(proof.kernels)});
  }
}

}  // namespace suites

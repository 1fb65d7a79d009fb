#include "suites/phases/profiles/path_rules.h"

#include <map>

#include "suites/conformance/checks/check.h"

namespace suites {
namespace {

using harness::trace::PathRule;

// Parts of kernel names.
constexpr const char* kOwnRows = "row_attention_kernel|selected_";  // in order of rows, of keys
constexpr const char* kOwnIntervals = "interval_attention_kernel";
// Both codes use the same kernel names; the namespace distinguishes them. Kernels that both launch
// (index, sums, statistics of rows) are in `portable` and prove nothing.
constexpr const char* kRows = "portable::row_attention_kernel";
constexpr const char* kKeys = "sm90::selected_forward";
// Few tiles have a kernel of their own, many go through that of the interval branches.
constexpr const char* kTiles = "sm90::selected_dense|sm90::interval_attention_kernel";
constexpr const char* kFlash = "flash_fwd";
constexpr const char* kLibraryAttention = "flash_fwd|fmha|cudnn_generated|sdpa";
constexpr const char* kProducts = "gemm|gemv|nvjet|xmma|cutlass|dot_kernel";

constexpr const char* kBackward = ".backward";

/// Stage of a record -> range of the layer.
const char* range_of(const std::string& stage) {
  static const std::map<std::string, const char*> kRanges = {
      {"sel_attn", "nsa.sel_attn"},
      {"win_attn", "nsa.win_attn"},
      {"cmp_attn", "nsa.cmp_attn+select"},
      {"sel_attn.backward", "nsa.sel_attn.backward"},
      {"win_attn.backward", "nsa.win_attn.backward"},
      {"cmp_attn.backward", "nsa.cmp_attn.backward"}};
  const auto found = kRanges.find(stage);
  return found == kRanges.end() ? nullptr : found->second;
}

/// Kernels of the project that a stage must launch, and those that it must not.
struct OwnKernels {
  std::vector<std::string> expected;
  std::string foreign;
};

OwnKernels selected_forward(const std::string& order) {
  if (order.starts_with("by rows")) return {{kRows}, "sm90::"};
  if (order.starts_with("order of keys")) return {{kKeys}, kRows};
  if (order.starts_with("whole tiles below")) return {{kTiles, kKeys}, kRows};
  if (order.starts_with("whole tiles")) return {{kTiles}, kRows};
  return {{kOwnRows}, ""};
}

OwnKernels own_kernels(const std::string& stage, const std::string& detail) {
  const bool selected = stage.starts_with("sel_attn"), backward = stage.ends_with(kBackward);
  if (selected && !backward) return selected_forward(detail);
  const bool sm80 = detail.starts_with("sm_80");
  if (selected) {
    const std::string keys = "::selected_backward";
    return sm80 ? OwnKernels{{"sm80" + keys}, "sm90::"}
                : OwnKernels{{"sm90" + keys + "|sm90::interval_backward"}, "sm80" + keys};
  }
  const std::string name = backward ? "::interval_backward" : "::interval_attention_kernel";
  return sm80 ? OwnKernels{{"sm80" + name}, "sm90::"} : OwnKernels{{"sm90" + name}, "sm80" + name};
}

PathRule rule_of(const std::string& stage, const std::string& backend, const std::string& detail) {
  const char* range = range_of(stage);
  if (backend == "fused") {
    const OwnKernels own = own_kernels(stage, detail);
    return {range, own.expected, {own.foreign, kLibraryAttention, kProducts}};
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
    if (row.count == 0 || !path_rule(row.stage, row.requested, row.detail)) continue;
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
  if (range_of(stage) == nullptr) return std::nullopt;
  if (stage.ends_with(kBackward) && backend != "fused") return std::nullopt;
  return rule_of(stage, backend, detail);
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

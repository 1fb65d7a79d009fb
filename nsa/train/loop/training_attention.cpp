#include "nsa/train/loop/training_attention.h"

#include <algorithm>
#include <initializer_list>

#include "nsa/program/input_error.h"
#include "nsa/train/record/judge.h"

namespace nsa::train {
namespace {

bool all_default(const SwitchSet& switches, std::initializer_list<const char*> names) {
  return std::ranges::all_of(names, [&](const char* name) { return switches.is_default(name); });
}

}  // namespace

std::string TrainingAttention::requested(const RanBackend& row) const {
  if (row.requested != to_string(BranchBackend::kFused) &&
      row.requested != to_string(BranchBackend::kCpu))
    return row.requested;
  const bool left = (auto_sel && row.stage.starts_with("sel_attn")) ||
                    (auto_cmp && (row.stage.starts_with("cmp_attn") || row.stage == "select")) ||
                    (auto_win && row.stage.starts_with("win_attn"));
  return left ? kAutoBackend : row.requested;
}

TrainingAttention training_attention(const SwitchSet& switches, const std::string& backend,
                                     c10::Device device) {
  TrainingAttention result{NsaOptions::from(switches)};
  const bool fused = backend == "fused";
  if (!fused && backend != "auto" && backend != "switches")
    throw InputError("training option backend must be auto, fused or switches, got \"" + backend +
                     "\"");
  const bool parity = !switches.is_default("NSA_FORCE_PARITY");
  const bool flash = !switches.is_default("NSA_USE_FA2");
  const bool sel = !parity && all_default(switches, {"NSA_USE_SEL_PACK", "NSA_USE_SEL_VARLEN",
                                                     "NSA_USE_SEL_MASK", "NSA_FORCE_SEL_MASK",
                                                     "NSA_TRAIN_SAFE_PACK"});
  // The kernel of the compressed branch leaves the ranges, too.
  const bool cmp =
      !parity && !flash && all_default(switches, {"NSA_USE_FA2_CMP", "NSA_SEL_RANGES_V2"});
  const bool win = !parity && !flash && switches.is_default("NSA_USE_FA2_WIN");
  if (fused && !(sel && cmp && win))
    throw InputError(
        "training option backend=fused stands against a switch that asks for another backend; "
        "unset it, or use backend=switches");
  if (backend == "switches") return result;
  const bool on_cpu = !fused && !device.is_cuda();
  const BranchBackend kernel = on_cpu ? BranchBackend::kCpu : BranchBackend::kFused;
  if (sel) result.options.sel = on_cpu ? SelBackend::kCpu : SelBackend::kFused;
  if (cmp) result.options.cmp = kernel;
  if (win) result.options.win = kernel;
  result.auto_sel = sel && !fused;
  result.auto_cmp = cmp && !fused;
  result.auto_win = win && !fused;
  return result;
}

}  // namespace nsa::train

#include "suites/eval/backends.h"

#include <array>
#include <map>
#include <sstream>
#include <vector>

#include "nsa/program/input_error.h"

namespace suites::eval {
namespace {

using nsa::BranchBackend;
using nsa::NsaOptions;
using nsa::RangesVersion;
using nsa::SelBackend;

constexpr std::array kSel = {SelBackend::kGather, SelBackend::kPacked, SelBackend::kVarlen,
                             SelBackend::kMasked, SelBackend::kFused,  SelBackend::kCpu};
constexpr std::array kRanges = {RangesVersion::kV1, RangesVersion::kV1Bulk, RangesVersion::kV2};
constexpr std::array kBranch = {BranchBackend::kPlain, BranchBackend::kFlash, BranchBackend::kCudnn,
                                BranchBackend::kFused, BranchBackend::kCpu};

/// What an operator may choose.
struct Choice {
  bool sel = false, ranges = false, cmp = false, win = false;
};

Choice choice_of(const std::string& op) {
  const std::map<std::string, Choice> choices = {
      {"layer", {.sel = true, .ranges = true, .cmp = true, .win = true}},
      {"scores", {.cmp = true}},
      {"select", {.cmp = true}},
      {"ranges", {.ranges = true, .cmp = true}},
      {"sel_attn", {.sel = true, .ranges = true}},
      {"win_attn", {.win = true}}};
  const auto found = choices.find(op);
  return found == choices.end() ? Choice{} : found->second;
}

std::vector<std::string> names_of(const Choice& choice) {
  std::vector<std::string> names;
  const auto add = [&names](const auto& values) {
    for (const auto value : values) names.push_back(to_string(value));
  };
  if (choice.sel) add(kSel);
  if (choice.ranges) add(kRanges);
  if (choice.cmp || choice.win) add(kBranch);
  return names;
}

/// True when one of `values` has the name; it is then put into `target`.
template <class Values, class Target>
bool choose(bool may, const Values& values, const std::string& name, Target& target) {
  for (const auto value : values) {
    if (!may || to_string(value) != name) continue;
    target = value;
    return true;
  }
  return false;
}

void apply(const std::string& op, const std::string& name, NsaOptions& options) {
  const Choice choice = choice_of(op);
  const bool sel = choose(choice.sel, kSel, name, options.sel);
  const bool ranges = choose(choice.ranges, kRanges, name, options.ranges);
  const bool cmp = choose(choice.cmp, kBranch, name, options.cmp);
  const bool win = choose(choice.win, kBranch, name, options.win);
  if (sel || ranges || cmp || win) return;
  std::string known;
  for (const std::string& word : names_of(choice)) known += (known.empty() ? "" : ", ") + word;
  throw nsa::InputError(
      "--backend " + name + ": --op " + op +
      (known.empty() ? " has one backend; leave the option out" : " knows " + known));
}

}  // namespace

nsa::SwitchSet switches_for(const std::string& op, const std::string& mode) {
  const nsa::SwitchSet switches = nsa::SwitchSet::from_environment();
  const std::string path = "nsa-eval --op " + op + " --mode " + mode;
  if (mode != "decode" && !switches.is_default("NSA_PREFILL_BATCHED"))
    switches.require_honoured(path, {});  // only decode has a prefill
  if (op == "layer")
    switches.require_honoured(
        path, {"NSA_SEL_RANGES_V2", "NSA_USE_SEL_PACK", "NSA_USE_SEL_VARLEN", "NSA_USE_SEL_MASK",
               "NSA_FORCE_SEL_MASK", "NSA_FORCE_PARITY", "NSA_PREFILL_BATCHED", "NSA_USE_FA2",
               "NSA_USE_FA2_WIN", "NSA_USE_FA2_CMP", "NSA_TRAIN_SAFE_PACK", "NSA_STRICT_ASSERTS",
               "NSA_SDPA_AUDIT", "NSA_NVTX", "NSA_KERNELS", "NSA_CASES_DIR"});
  else if (op == "sel_attn")
    switches.require_honoured(
        path, {"NSA_SEL_RANGES_V2", "NSA_USE_SEL_PACK", "NSA_USE_SEL_VARLEN", "NSA_USE_SEL_MASK",
               "NSA_FORCE_SEL_MASK", "NSA_FORCE_PARITY", "NSA_TRAIN_SAFE_PACK", "NSA_SDPA_AUDIT",
               "NSA_NVTX", "NSA_KERNELS", "NSA_CASES_DIR"});
  else if (op == "win_attn")
    switches.require_honoured(path, {"NSA_FORCE_PARITY", "NSA_USE_FA2", "NSA_USE_FA2_WIN",
                                     "NSA_SDPA_AUDIT", "NSA_NVTX", "NSA_KERNELS", "NSA_CASES_DIR"});
  else
    switches.require_honoured(
        path, {"NSA_SEL_RANGES_V2", "NSA_FORCE_PARITY", "NSA_USE_FA2", "NSA_USE_FA2_CMP",
               "NSA_NVTX", "NSA_KERNELS", "NSA_CASES_DIR"});
  return switches;
}

nsa::NsaOptions backends_for(const std::string& op, const std::string& backend,
                             const nsa::SwitchSet& switches) {
  NsaOptions options = NsaOptions::from(switches);
  std::istringstream names(backend);
  for (std::string name; std::getline(names, name, ',');) apply(op, name, options);
  return options;
}

}  // namespace suites::eval

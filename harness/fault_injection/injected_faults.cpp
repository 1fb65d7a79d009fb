#include "harness/fault_injection/injected_faults.h"

#include "harness/engine/phase_record.h"
#include "harness/evidence/storage/files.h"
#include "harness/fault_injection/faults/faults.h"
#include "harness/fault_injection/faulty_run.h"
#include "harness/schema/error.h"
#include "harness/schema/parse/nearest.h"
#include "harness/schema/read.h"

namespace harness {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

InjectedFault in_run(const std::string& id, const std::string& what, const std::string& code,
                     const std::vector<FaultForm>& forms, Needs needs = Needs::kCpu) {
  return {id, what, code, inject_forms(forms), control_forms(forms), needs};
}

/// A fault of docs/faults.md in the operators, judged by conformance.
FaultForm operators(const std::string& fault, const std::string& code) {
  return {.phase = "operators", .fault = fault, .code = code};
}

FaultForm training(const std::string& fault, const std::string& code) {
  return {.phase = "random", .fault = fault, .code = code};
}

/// On a busy machine equal arms may come out INCONCLUSIVE, and never FASTER or SLOWER.
FaultForm slower_arm() {
  FaultForm form{.phase = "ab", .fault = "P28", .code = "AB_VERDICT/SLOWER"};
  form.may_be_undecided = true;
  return form;
}

/// Modes are compared bit for bit in fp64 only.
FaultForm partial_block() {
  FaultForm form = operators("P05", "MODE_DISAGREEMENT");
  form.args = {{"dtypes", {"fp64"}}};
  return form;
}

/// Steps longer than the smallest allowance of the watch: slow all the same, not hung.
FaultForm slow_steps() {
  FaultForm form{.phase = "text", .fault = "P10", .code = "SLOW/the floor is"};
  form.args = {{"steps", 8}, {"rate_floor", 600}};
  form.limits = WatchPolicy{.first_step_s = 60, .stall_floor_s = 0.3};
  form.reported_only = true;
  return form;
}

/// A call that the device bounds: the host asks for little and waits once.
FaultForm profiled(const std::string& fault, const std::string& code) {
  return {.phase = "profile", .fault = fault, .code = code};
}

/// A hang leaves its autopsy, and no process.
std::string look_at_hang(const fs::path& phase, bool with_stacks) {
  const auto outcome = read_json<GroupOutcome>(read_bytes(phase / "g01.json"), "g01.json");
  if (!outcome.left.empty()) return "processes survived: " + outcome.left.front();
  if (outcome.autopsy.empty()) return "there is no autopsy";
  const json autopsy = json::parse(read_bytes(phase / outcome.autopsy));
  if (autopsy["processes"].empty()) return "the autopsy names no process";
  const bool stacks = read_bytes(phase / "g01.err").find("== thread ") != std::string::npos;
  return with_stacks && !stacks ? "the host stacks are missing" : "";
}

FaultForm hang_in_worker() {
  FaultForm form{.phase = "ranges", .fault = "P11", .code = "HANG/no progress"};
  form.breaking = {{"first_step_s", 4}};
  form.inspect = [](const fs::path& run) { return look_at_hang(run / "phases/ranges", true); };
  return form;
}

FaultForm hang_in_training() {
  FaultForm form{.phase = "text", .fault = "P11", .code = "HANG/last heartbeat"};
  form.limits = WatchPolicy{.first_step_s = 60, .stall_floor_s = 3};
  form.inspect = [](const fs::path& run) { return look_at_hang(run / "phases/text", false); };
  return form;
}

std::vector<InjectedFault> faults_in_results() {
  return {
      in_run("P01", "selected attention sees only key 0", "ORACLE_MISMATCH",
             {operators("P01", "ORACLE_MISMATCH")}),
      in_run("P02", "RoPE on the flattened head vector", "ROPE_PROPERTY",
             {operators("P02", "ROPE_PROPERTY")}),
      in_run("P03", "attention sees future tokens", "CAUSALITY_LEAK",
             {operators("P03", "CAUSALITY_LEAK/branch win"),
              operators("P03/blocks", "CAUSALITY_LEAK/branch"),
              operators("P03/twice_window", "CAUSALITY_LEAK/branch win")}),
      in_run("P04", "prefill hands no compression tail to decode", "MODE_DISAGREEMENT",
             {operators("P04", "MODE_DISAGREEMENT")}),
      in_run("P05", "partial current block dropped", "MODE_DISAGREEMENT", {partial_block()}),
      in_run("P06", "speed of a placeholder", "SPEEDUP_WITHHELD",
             {{.phase = "ranges_ab", .fault = "P06", .code = "SPEEDUP_WITHHELD/not valid"}}),
      in_run("P07", "backend silently replaced", "PATH_PROOF",
             {operators("P07", "PATH_PROOF/requested"),
              operators("P07/sel_attn", "PATH_PROOF/ran gather")}),
  };
}

std::vector<InjectedFault> faults_of_processes() {
  using namespace injection;
  return {
      {"P08", "unknown runbook key, unknown and dead switch", "CONFIG_ERROR", inject_unknown_names,
       control_known_names},
      in_run("P09", "a wait for the device an element", "HOST_BOUND",
             {profiled("P09", "HOST_BOUND/syncs_per_step_count")}, Needs::kCuda),
      in_run("P10", "slow but progressing step", "SLOW", {slow_steps()}),
      in_run("P11", "a call that never returns", "HANG", {hang_in_worker(), hang_in_training()}),
      {"P12", "foreign process holds device memory", "GPU_NOT_FREE", inject_held_memory,
       control_free_device, Needs::kCuda},
  };
}

std::vector<InjectedFault> faults_of_training() {
  using namespace injection;
  return {
      {"P13", "wrong batch and precision", "GAP_ATTRIBUTED", inject_wrong_settings,
       control_good_settings, Needs::kCuda},
      in_run("P14", "label shift missing on random tokens", "LOSS_TOO_GOOD",
             {training("P14", "LOSS_TOO_GOOD")}),
      in_run("P15", "values of one branch overflow", "NON_FINITE",
             {training("P15", "NON_FINITE/layer1: ")}),
      in_run("P16", "corpus replaced by random tokens", "DATA_SUBSTITUTED",
             {{.phase = "text", .fault = "P16", .code = "DATA_SUBSTITUTED"}}),
      in_run("P17", "loader stalls, first batch late", "LOADER_STALL",
             {training("P17", "LOADER_STALL")}),
      in_run("P18", "schedule counts micro-batches", "LR_TRACE", {training("P18", "LR_TRACE")}),
      {"P19", "data position lost over a checkpoint", "RESUME_DIFFERS", inject_lost_position,
       control_exact_resume},
      in_run("P20", "gradient norm stuck at 0", "STUCK_METRIC", {training("P20", "STUCK_METRIC")}),
  };
}

/// World size 1 where two ranks were asked for, and a rank killed or stopped while both train.
InjectedFault missing_rank() {
  const auto both = [](const FaultAction& a, const FaultAction& b) {
    return [a, b](const SelftestSetup& setup) {
      const Injected first = a(setup), second = b(setup);
      return Injected{first.as_wanted && second.as_wanted, first.seen + "; " + second.seen};
    };
  };
  return {"P21",
          "one rank where two were asked for; a rank killed or stopped",
          "RANK_FAULT",
          both(injection::inject_lone_rank, injection::inject_lost_rank),
          both(injection::control_lone_rank, injection::control_both_ranks),
          Needs::kTwoRanks};
}

/// A step that cannot fit the device.
FaultForm too_large_batch() {
  FaultForm form{.phase = "random", .fault = "", .code = "OOM"};
  form.breaking = {{"model", "m7c_125m"}, {"batch", 4096}, {"seq_len", 2048}};
  return form;
}

std::vector<InjectedFault> faults_of_evidence() {
  using namespace injection;
  return {
      missing_rank(),
      in_run("P22", "bucket cap asked for and not in force", "BUCKET_MISMATCH",
             {{.phase = "ranks", .fault = "P22", .code = "BUCKET_MISMATCH/cap asked for"}},
             Needs::kTwoRanks),
      in_run("P23", "a batch too large for the device", "OOM", {too_large_batch()}, Needs::kCuda),
      {"P24", "baseline missing, zero, of other hardware", "BASELINE_INVALID", inject_bad_baselines,
       control_baseline},
      {"P25", "criterion without data", "NOT_EVALUATED", inject_missing_data, control_whole_run},
      {"P26", "programs older than the checkout, dirty tree", "PROVENANCE_MISMATCH",
       inject_foreign_programs, control_own_programs},
      {"P27", "change mixes folders, edits a tolerance", "DIFF_OUT_OF_SCOPE", inject_mixed_diff,
       control_plain_diff},
      in_run("P28", "one of two equal arms slowed by 15 % (GPU: 3 %)", "AB_VERDICT",
             {slower_arm()}),
      {"P29", "edited artifact, figure, verdict, report", "EVIDENCE_TAMPERED", inject_edits,
       control_untouched},
      in_run("P30", "work of one branch counted in another", "SHARES_DO_NOT_SUM",
             {profiled("P30", "SHARES_DO_NOT_SUM/add up to")}, Needs::kCuda),
      {"P31", "stop file, half a file, process of an earlier run", "STALE_LEFTOVERS",
       inject_leftovers, control_empty_folder},
      {"P32", "clocks of one arm fall by 20 %", "THROTTLED", inject_throttling,
       control_steady_clocks},
  };
}

}  // namespace

std::string_view needs_name(Needs needs) {
  switch (needs) {
    case Needs::kCuda:
      return "cuda";
    case Needs::kTwoRanks:
      return "2 ranks";
    case Needs::kCpu:
      break;
  }
  return "";
}

const std::vector<InjectedFault>& injected_faults() {
  static const std::vector<InjectedFault> kFaults = [] {
    std::vector<InjectedFault> all;
    for (auto part :
         {faults_in_results(), faults_of_processes(), faults_of_training(), faults_of_evidence()})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return kFaults;
}

namespace {

const InjectedFault& find_fault(const std::string& id) {
  std::vector<std::string> known;
  for (const InjectedFault& fault : injected_faults()) {
    if (fault.id == id) return fault;
    known.push_back(fault.id);
  }
  throw ConfigError("args.faults names " + in_quotes(id) + ", which selftest cannot inject" +
                    did_you_mean(id, known));
}

}  // namespace

std::vector<const InjectedFault*> chosen_faults(const std::vector<std::string>& ids) {
  std::vector<const InjectedFault*> faults;
  if (ids == std::vector<std::string>{"all"}) {
    for (const InjectedFault& fault : injected_faults()) faults.push_back(&fault);
  } else {
    for (const std::string& id : ids) faults.push_back(&find_fault(id));
  }
  return faults;
}

}  // namespace harness

#include "harness/builtin/planted_faults.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/builtin/worker_call.h"
#include "harness/evidence/files.h"
#include "harness/evidence/mini_run.h"
#include "harness/evidence/temp_dir.h"
#include "harness/evidence/verify.h"
#include "harness/runbook/runbook.h"
#include "harness/schema/read.h"

namespace harness {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

// P03
// ------------------------------------------------------------------------------------------------------------------

WorkerAnswer conformance(const SelftestSetup& setup, const std::string& fault) {
  WorkerCall call{.program = setup.bin_dir / "nsa-worker", .kind = "operator_conformance"};
  call.args = {{"configs", 1}, {"dtypes", {"fp32"}}};
  if (!fault.empty()) call.args["fault"] = fault;
  call.device = setup.device;
  call.seed = setup.seed;
  return call_worker(call);
}

/// Every form of the leak must be seen; a window into the future, scores over future blocks, a leak
/// at S = 2w only.
Planted plant_leak(const SelftestSetup& setup) {
  Planted result{.as_wanted = true, .seen = ""};
  for (const char* form : {"P03", "P03/blocks", "P03/twice_window"}) {
    const WorkerAnswer answer = conformance(setup, form);
    std::string seen = answer.problem.empty() ? "no CAUSALITY_LEAK" : answer.problem;
    for (const auto& check : answer.failed_checks())
      if (check.code == "CAUSALITY_LEAK" && answer.problem.empty()) {
        seen = check.id + ": " + check.detail.substr(0, 120);
        break;
      }
    result.as_wanted &= answer.problem.empty() && !seen.starts_with("no ");
    result.seen += std::string(result.seen.empty() ? "" : "; ") + form + ": " + seen;
  }
  return result;
}

Planted control_leak(const SelftestSetup& setup) {
  const WorkerAnswer answer = conformance(setup, "");
  if (!answer.problem.empty()) return {false, answer.problem};
  const auto failed = answer.failed_checks();
  if (!failed.empty())
    return {false, failed.front().id + " failed without a fault: " + failed.front().code};
  return {!answer.checks().empty(),
          std::to_string(answer.checks().size()) + " checks, none failed"};
}

// P08
// ------------------------------------------------------------------------------------------------------------------

std::string runbook_text(const std::string& key) {
  return R"({"schema": "nsa-runbook/1", "name": "planted", "title": "t", "phases": [{"id": "a", "run": "nsa-train", ")" +
         key + R"(": 5}]})";
}

/// A misspelt key of a runbook, and a misspelt switch given to the worker, must both stop
/// everything before it runs.
Planted plant_unknown_names(const SelftestSetup& setup) {
  std::string reader;
  try {
    read_json<Runbook>(runbook_text("timout_s"), "planted.json");
  } catch (const ConfigError& e) {
    reader = e.what();
  }
  WorkerCall call{.program = setup.bin_dir / "nsa-worker", .kind = "gate_health"};
  call.env = {{"NSA_SEL_RANGES_V3", "1"}};
  const WorkerAnswer answer = call_worker(call);
  const bool key =
      reader.find("timout_s") != std::string::npos && reader.find("timeout_s") != std::string::npos;
  const bool name = answer.exit == 2 && !answer.said_anything &&
                    answer.log.find("CONFIG_ERROR") != std::string::npos &&
                    answer.log.find("NSA_SEL_RANGES_V2") != std::string::npos;
  return {key && name, "runbook: " + (reader.empty() ? "accepted" : reader) + "; worker: exit " +
                           std::to_string(answer.exit) + " " + answer.log.substr(0, 160)};
}

Planted control_known_names(const SelftestSetup& setup) {
  try {
    read_json<Runbook>(runbook_text("timeout_s"), "planted.json");
  } catch (const ConfigError& e) {
    return {false, e.what()};
  }
  WorkerCall call{.program = setup.bin_dir / "nsa-worker", .kind = "gate_health"};
  call.args = {{"layers", 1}, {"dk", 16}, {"tokens", 16}};
  call.env = {{"NSA_SEL_RANGES_V2", "1"}};
  const WorkerAnswer answer = call_worker(call);
  return {answer.problem.empty() && answer.exit == 0,
          answer.problem.empty() ? "both accepted" : answer.problem};
}

// P24
// ------------------------------------------------------------------------------------------------------------------

CriterionResult judged_on(const json& baseline) {
  const TempDir dir;
  write_mini_run(dir.path(), {.baseline = baseline, .criterion_on_baseline = true});
  for (const CriterionResult& criterion : derive(dir.path()).criteria)
    if (criterion.id == "C-SPEED-BASE") return criterion;
  throw Error("the mini run lost its criterion C-SPEED-BASE");
}

json mini_baseline(double value, const std::string& hw_key) {
  return {{"schema", "nsa-baseline/1"},
          {"runbook", "mini"},
          {"hw_key", hw_key},
          {"metrics", {{"speed.v2_ms", {{"value", value}}}}}};
}

Planted plant_bad_baselines(const SelftestSetup&) {
  Planted result{.as_wanted = true, .seen = ""};
  const std::vector<std::pair<std::string, json>> forms = {
      {"missing", nullptr},
      {"zero", mini_baseline(0, "cpu-Invented_CPU")},
      {"other hardware", mini_baseline(2, "NVIDIA_A100-300W-550")}};
  for (const auto& [form, baseline] : forms) {
    const CriterionResult criterion = judged_on(baseline);
    result.as_wanted &= criterion.verdict == CriterionVerdict::kNotEvaluated &&
                        criterion.reason.starts_with("BASELINE_INVALID");
    result.seen += (result.seen.empty() ? "" : "; ") + form + ": " +
                   std::string(enum_name(criterion.verdict)) + ", " + criterion.reason;
  }
  return result;
}

Planted control_baseline(const SelftestSetup&) {
  const CriterionResult criterion = judged_on(mini_baseline(2, "cpu-Invented_CPU"));
  return {criterion.verdict == CriterionVerdict::kPass,
          "fitting baseline: " + std::string(enum_name(criterion.verdict))};
}

// P25
// ------------------------------------------------------------------------------------------------------------------

Planted judged_without_data(const MiniRun& run, bool cut) {
  const TempDir dir;
  write_mini_run(dir.path(), run);
  if (cut) fs::resize_file(dir / "phases/conform/g01.jsonl", 400);
  const Derived derived = derive_all(RunFolder(dir.path()));
  const auto criterion =
      std::find_if(derived.results.criteria.begin(), derived.results.criteria.end(),
                   [](const CriterionResult& c) { return c.id == "C-CONFORM"; });
  const bool undecided = criterion != derived.results.criteria.end() &&
                         criterion->verdict == CriterionVerdict::kNotEvaluated;
  const Verdict& verdict = derived.results.verdict;
  return {undecided && verdict.exit != 0 && verdict.word.starts_with("NO-GO"),
          std::string(undecided ? "NOT_EVALUATED" : "evaluated") + ", verdict " + verdict.word};
}

Planted plant_missing_data(const SelftestSetup&) {
  const Planted skipped = judged_without_data({.conform_runs = false}, false);
  const Planted cut = judged_without_data({}, true);
  return {skipped.as_wanted && cut.as_wanted,
          "phase skipped: " + skipped.seen + "; run cut: " + cut.seen};
}

Planted control_whole_run(const SelftestSetup&) {
  const TempDir dir;
  write_mini_run(dir.path());
  const Verdict verdict = derive(dir.path()).verdict;
  return {verdict.word == "GO" && verdict.exit == 0, "whole run: " + verdict.word};
}

// P29
// ------------------------------------------------------------------------------------------------------------------

struct Edit {
  const char *what, *file, *from, *to;
};

/// The file that `verify` names after one edit of a finished run; empty when it names none.
std::string file_named_after(const Edit& edit) {
  const TempDir dir;
  finish_mini_run(dir.path());
  std::string text = read_bytes(dir / edit.file);
  const size_t at = text.find(edit.from);
  if (at == std::string::npos)
    throw Error(std::string("the mini run lost '") + edit.from + "' in " + edit.file);
  write_bytes(dir / edit.file, text.replace(at, std::string(edit.from).size(), edit.to));
  const Verification found = verify(dir.path(), render_mini_run);
  return found.problems.empty() ? "" : found.problems.front().file();
}

Planted plant_edits(const SelftestSetup&) {
  static constexpr Edit kEdits[] = {
      {"artifact", "phases/speed/g01.jsonl", "\"value\":4.0", "\"value\":9.0"},
      {"figure", "results.json", "\"n\": 8", "\"n\": 9"},
      {"verdict", "results.json", "\"word\": \"GO\"", "\"word\": \"NO\""},
      {"report", "report.md", "PASS", "FAIL"}};
  Planted result{.as_wanted = true, .seen = ""};
  for (const Edit& edit : kEdits) {
    const std::string named = file_named_after(edit);
    result.as_wanted &= named == edit.file;
    result.seen += std::string(result.seen.empty() ? "" : "; ") + edit.what + ": " +
                   (named.empty() ? "not seen" : "verify names " + named);
  }
  return result;
}

Planted control_untouched(const SelftestSetup&) {
  const TempDir dir;
  const Written written = finish_mini_run(dir.path());
  const Verification found = verify(dir.path(), render_mini_run, written.head);
  return {found.ok(), found.ok() ? "untouched run verifies" : found.problems.front().what()};
}

}  // namespace

const std::vector<PlantedFault>& planted_faults() {
  static const std::vector<PlantedFault> kFaults = {
      {"P03", "attention sees future tokens", "CAUSALITY_LEAK", plant_leak, control_leak},
      {"P08", "unknown runbook key, unknown switch", "CONFIG_ERROR", plant_unknown_names,
       control_known_names},
      {"P24", "baseline missing, zero, of other hardware", "BASELINE_INVALID", plant_bad_baselines,
       control_baseline},
      {"P25", "criterion without data", "NOT_EVALUATED", plant_missing_data, control_whole_run},
      {"P29", "edited artifact, figure, verdict, report", "EVIDENCE_TAMPERED", plant_edits,
       control_untouched}};
  return kFaults;
}

}  // namespace harness

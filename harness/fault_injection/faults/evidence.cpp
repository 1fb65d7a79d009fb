// P24, P25, P29, P32: injected in the files of finished runs of invented numbers.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/evidence/derive/derive.h"
#include "harness/evidence/mini_run.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/evidence/verify.h"
#include "harness/fault_injection/faults/faults.h"

namespace harness::injection {
namespace fs = std::filesystem;
using nlohmann::json;

CriterionResult judged_on(const json& baseline) {
  const TempDir dir;
  write_mini_run(dir.path(), {.baseline = baseline, .criterion_on_baseline = true});
  for (const CriterionResult& criterion : derive(dir.path()).criteria)
    if (criterion.id == "C-SPEED-BASE") return criterion;
  throw Error("the mini run lost its criterion C-SPEED-BASE");
}

Injected inject_bad_baselines(const SelftestSetup&) {
  Injected result{.as_wanted = true, .seen = ""};
  json zero = mini_baseline(), other = mini_baseline();
  zero["metrics"][0].update({{"value", 0}, {"lo", 0}, {"hi", 0}});
  other["hardware"]["sku"] = "NVIDIA A100";
  const std::vector<std::pair<std::string, json>> forms = {
      {"missing", nullptr}, {"zero", zero}, {"other hardware", other}};
  for (const auto& [form, baseline] : forms) {
    const CriterionResult criterion = judged_on(baseline);
    result.as_wanted &= criterion.verdict == CriterionVerdict::kNotEvaluated &&
                        criterion.reason.starts_with("BASELINE_INVALID");
    result.seen += (result.seen.empty() ? "" : "; ") + form + ": " +
                   std::string(enum_name(criterion.verdict)) + ", " + criterion.reason;
  }
  return result;
}

Injected control_baseline(const SelftestSetup&) {
  const CriterionResult criterion = judged_on(mini_baseline());
  return {criterion.verdict == CriterionVerdict::kPass,
          "fitting baseline: " + std::string(enum_name(criterion.verdict))};
}

Injected judged_without_data(const MiniRun& run, bool cut) {
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
  const bool blocks = verdict.word.starts_with("NO-GO") || verdict.word == "PARTIAL";
  return {undecided && verdict.exit != 0 && blocks,
          std::string(undecided ? "NOT_EVALUATED" : "evaluated") + ", verdict " + verdict.word};
}

Injected inject_missing_data(const SelftestSetup&) {
  const Injected skipped = judged_without_data({.conform_runs = false}, false);
  const Injected cut = judged_without_data({}, true);
  return {skipped.as_wanted && cut.as_wanted,
          "phase skipped: " + skipped.seen + "; run cut: " + cut.seen};
}

Injected control_whole_run(const SelftestSetup&) {
  const TempDir dir;
  write_mini_run(dir.path());
  const Verdict verdict = derive(dir.path()).verdict;
  return {verdict.word == "GO" && verdict.exit == 0, "whole run: " + verdict.word};
}

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

Injected inject_edits(const SelftestSetup&) {
  static constexpr Edit kEdits[] = {
      {"artifact", "phases/speed/g01.jsonl", "\"value\":4.0", "\"value\":9.0"},
      {"figure", "results.json", "\"n\":8", "\"n\":9"},
      {"verdict", "results.json", "\"word\":\"GO\"", "\"word\":\"NO\""},
      {"report", "report.md", "PASS", "FAIL"}};
  Injected result{.as_wanted = true, .seen = ""};
  for (const Edit& edit : kEdits) {
    const std::string named = file_named_after(edit);
    result.as_wanted &= named == edit.file;
    result.seen += std::string(result.seen.empty() ? "" : "; ") + edit.what + ": " +
                   (named.empty() ? "not seen" : "verify names " + named);
  }
  return result;
}

Injected control_untouched(const SelftestSetup&) {
  const TempDir dir;
  const Written written = finish_mini_run(dir.path());
  const Verification found = verify(dir.path(), render_mini_run, written.head);
  return {found.ok(), found.ok() ? "untouched run verifies" : found.problems.front().what()};
}

// P32
// ------------------------------------------------------------------------------------------------------------------

static Results run_with_clock(double v2_clock_mhz) {
  const TempDir dir;
  write_mini_run(dir.path(), {.speedup = 1.51, .v2_clock_mhz = v2_clock_mhz});
  return derive(dir.path());
}

/// An arm whose clock falls by 20 %: in time it misses its threshold, in cycles it does not.
Injected inject_throttling(const SelftestSetup&) {
  const Results results = run_with_clock(1440);
  const auto found = std::ranges::find(results.findings, "THROTTLED", &Finding::code);
  const auto criterion = std::ranges::find(results.criteria, "C-SPEED", &CriterionResult::id);
  const bool undecided =
      criterion != results.criteria.end() && criterion->verdict == CriterionVerdict::kInconclusive;
  return {found != results.findings.end() && undecided,
          (found == results.findings.end() ? "no THROTTLED" : "THROTTLED: " + found->symptom) +
              "; C-SPEED is " +
              (criterion == results.criteria.end() ? "absent"
                                                   : std::string(enum_name(criterion->verdict)))};
}

Injected control_steady_clocks(const SelftestSetup&) {
  const Results results = run_with_clock(1800);
  for (const Finding& finding : results.findings)
    if (finding.code == "THROTTLED") return {false, finding.symptom};
  return {results.verdict.word == "GO", "equal clocks: " + results.verdict.word};
}

}  // namespace harness::injection

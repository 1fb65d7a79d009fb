#include "harness/fault_injection/faulty_run.h"

#include <algorithm>

#include "harness/engine/engine.h"
#include "harness/evidence/derive/derive.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/provenance/capture.h"
#include "harness/provenance/environment.h"
#include "harness/schema/error.h"

namespace harness {
namespace fs = std::filesystem;
namespace {

constexpr const char* kTarget = "selftest_target";
constexpr const char* kBystander = "gates";
constexpr const char* kCorpus = "selftest_text";

/// Programs of the injected run: those of the build, but the trainer is the one that takes faults.
void link_programs(const fs::path& bin_dir, const fs::path& to) {
  fs::create_directories(to);
  for (const auto& [name, program] :
       {std::pair{"nsa-worker", "nsa-worker"}, {"nsa-train", "nsa-train-faulty"}})
    if (fs::exists(bin_dir / program))
      fs::create_symlink(fs::absolute(bin_dir / program), to / name);
}

/// A corpus of invented sentences with a manifest, so that real data can be named anywhere.
void make_corpus(const fs::path& bin_dir, const fs::path& root) {
  std::string text;
  for (int i = 0; text.size() < (200 << 10); ++i)
    text += "line " + std::to_string(i * 7919 % 1000) + " is unrelated to " +
            std::to_string(i % 97) + ".\n";
  fs::create_directories(root);
  write_bytes(root / "text.txt", text);
  CaptureOptions options;
  options.timeout_s = 60;
  options.with_stderr = true;
  options.without_prefix = "NSA_";
  const Captured made = capture({(bin_dir / "nsa-data").string(), "--in",
                                 (root / "text.txt").string(), "--out", (root / kCorpus).string()},
                                options);
  if (!made.ok()) throw Error("nsa-data made no corpus: " + made.problem + made.out);
}

LoadedRunbook target(const SelftestSetup& setup, const std::string& phase) {
  LoadedRunbook book = load_runbook(kTarget, setup.configs);
  book.runbook.device = setup.device;
  std::erase_if(book.runbook.phases,
                [&](const PhaseSpec& spec) { return spec.id != phase && spec.id != kBystander; });
  for (PhaseSpec& spec : book.runbook.phases) spec.needs.clear();
  if (std::ranges::none_of(book.runbook.phases, [&](const auto& p) { return p.id == phase; }))
    throw Error(std::string(kTarget) + " has no phase " + phase);
  return book;
}

void change_phase(const FaultForm& form, bool faulted, const fs::path& data_root,
                  PlannedPhase& phase) {
  phase.args.update(form.args);
  if (faulted) phase.args.update(form.breaking);
  if (faulted && !form.fault.empty()) phase.args["fault"] = form.fault;
  if (phase.args.value("data", "") == kCorpus) phase.args["data_root"] = data_root.string();
}

std::string key_of(const SelftestSetup& setup, const FaultForm& form) {
  return form.phase + " " + setup.device + " " + form.args.dump();
}

}  // namespace

Results run_target(const SelftestSetup& setup, const FaultForm& form, bool faulted,
                   std::string* missing) {
  const TempDir dir;
  const LoadedRunbook book = target(setup, form.phase);
  RunOptions options;
  options.out = dir / "run";
  options.bin_dir = dir / "bin";
  options.info.id = "injected";
  options.info.runbook = kTarget;
  if (form.limits) options.limits = *form.limits;
  link_programs(setup.bin_dir, options.bin_dir);
  Plan plan = make_plan(book, facts());
  for (PlannedPhase& phase : plan.phases) {
    if (phase.id != form.phase) continue;
    change_phase(form, faulted, dir / "data", phase);
    if (phase.args.contains("data_root")) make_corpus(setup.bin_dir, dir / "data");
  }
  Observer observer;
  const RunReport report = run(options, book.runbook, book.kinds, plan, {}, observer);
  if (report.signal != 0) throw Error("interrupted");
  if (missing != nullptr && form.inspect) *missing = form.inspect(options.out);
  return derive(options.out);
}

std::string change_outside(const Results& clean, const Results& faulted, const std::string& phase) {
  const auto facts_of = [&](const Results& results) {
    std::map<std::string, std::string> all;
    for (const PhaseResult& p : results.phases)
      if (p.name != phase) all[p.id] = std::string(enum_name(p.status)) + " " + p.cause;
    for (const CriterionResult& c : results.criteria)
      if (c.phase != phase) all[c.id] = enum_name(c.verdict);
    for (const Finding& f : results.findings)
      if (f.fact != "P-" + phase && !f.id.starts_with("F-" + phase + ".")) all[f.id] = f.code;
    return all;
  };
  auto before = facts_of(clean), after = facts_of(faulted);
  // Findings about criteria and figures of the faulted phase are named after them.
  for (const CriterionResult& c : faulted.criteria)
    if (c.phase == phase)
      std::erase_if(after, [&](const auto& f) { return f.first.starts_with("F-" + c.id); });
  for (const auto& [id, text] : after)
    if (!before.contains(id) || before[id] != text)
      return id + " is " + text + ", without the fault " +
             (before.contains(id) ? before[id] : "absent");
  for (const auto& [id, text] : before)
    if (!after.contains(id)) return id + " is absent, without the fault " + text;
  return "";
}

namespace {

const Results& clean_run(const SelftestSetup& setup, const FaultForm& form) {
  auto& runs = *setup.clean_runs;
  const std::string key = key_of(setup, form);
  if (const auto known = runs.find(key); known != runs.end()) return known->second;
  return runs.emplace(key, run_target(setup, form, false)).first->second;
}

/// The finding that a form must lead to, in words; empty when there is none.
std::string report_of(const FaultForm& form, const Results& results) {
  const size_t slash = form.code.find('/');
  const std::string code = form.code.substr(0, slash);
  const std::string detail = slash == std::string::npos ? "" : form.code.substr(slash + 1);
  for (const Finding& finding : results.findings)
    if (finding.code == code && finding.symptom.find(detail) != std::string::npos)
      return code + ": " + finding.symptom.substr(0, 160);
  return "";
}

Injected inject_form(const SelftestSetup& setup, const FaultForm& form) {
  const Results& clean = clean_run(setup, form);
  std::string missing;
  const Results faulted = run_target(setup, form, true, &missing);
  const std::string report = report_of(form, faulted);
  const std::string name = form.fault.empty() ? form.phase : form.fault;
  if (report.empty()) {
    std::string codes;
    for (const Finding& finding : faulted.findings) codes += " " + finding.code;
    return {false, name + ": no " + form.code + "; reported:" + (codes.empty() ? " none" : codes)};
  }
  if (!form.reported_only && faulted.verdict.exit == clean.verdict.exit)
    return {false, name + ": " + report + ", but the verdict stays " + faulted.verdict.word};
  if (!missing.empty()) return {false, name + ": " + report + ", but " + missing};
  if (const std::string change = change_outside(clean, faulted, form.phase); !change.empty())
    return {false, name + ": outside its phase " + change};
  return {true, name + ": " + report + " (" + faulted.verdict.word + ")"};
}

Injected control_form(const SelftestSetup& setup, const FaultForm& form) {
  const Results& clean = clean_run(setup, form);
  constexpr int64_t kUndecided = 4;
  const bool undecided = form.may_be_undecided && clean.verdict.exit == kUndecided;
  if (clean.verdict.exit != 0 && !undecided)
    return {false, form.phase + ": " + clean.verdict.word + ", " + clean.verdict.rule};
  for (const Finding& finding : clean.findings)
    if (finding.code != "SLOW" || form.reported_only)
      return {false, form.phase + ": " + finding.code + ": " + finding.symptom};
  return {true, form.phase + ": " + clean.verdict.word + ", no finding"};
}

FaultAction all_of(std::vector<FaultForm> forms,
                   Injected (*one)(const SelftestSetup&, const FaultForm&)) {
  return [forms = std::move(forms), one](const SelftestSetup& setup) {
    Injected all{.as_wanted = !forms.empty(), .seen = ""};
    for (const FaultForm& form : forms) {
      const Injected each = one(setup, form);
      all.as_wanted &= each.as_wanted;
      if (all.seen.find(each.seen) == std::string::npos)
        all.seen += (all.seen.empty() ? "" : "; ") + each.seen;
    }
    return all;
  };
}

}  // namespace

FaultAction inject_forms(std::vector<FaultForm> forms) {
  return all_of(std::move(forms), inject_form);
}

FaultAction control_forms(std::vector<FaultForm> forms) {
  return all_of(std::move(forms), control_form);
}

}  // namespace harness

#include "harness/cli/planning.h"

#include "harness/cli/paths.h"
#include "harness/preflight/switches.h"
#include "harness/provenance/environment.h"
#include "harness/runbook/checks/names.h"
#include "harness/schema/error.h"

namespace harness::cli {
namespace {

/// Hands the file of --ci-status to the phases that read one.
void give_ci_status(const std::string& file, LoadedRunbook& book, Facts& facts) {
  if (file.empty()) return;
  bool read = false;
  for (PhaseSpec& phase : book.runbook.phases) {
    if (phase.run != "builtin:ci_status") continue;
    phase.args["file"] = std::filesystem::absolute(file).string();
    read = true;
  }
  if (!read)
    throw ConfigError("--ci-status is given, and runbook " + book.runbook.name +
                      " has no phase builtin:ci_status that would read it");
  facts["ci.status"] = "given";
}

/// Whether a phase that judges a change has its arguments.
void note_change(const LoadedRunbook& book, Facts& facts) {
  for (const PhaseSpec& phase : book.runbook.phases)
    if (phase.run == "builtin:diff_scope" && !phase.args.value("base", "").empty())
      facts["change.base"] = "given";
}

bool will_run(const PlannedPhase& phase) {
  return phase.decision == Decision::kRun || phase.decision == Decision::kRunWithDeviation;
}

}  // namespace

Planned plan_here(const Options& options) {
  if (options.runbook.empty())
    throw ConfigError("no runbook is named; give --runbook NAME (nsa-validate list shows them)");
  Planned planned{.book = load_runbook(options.runbook, configs_dir(options.configs), options.set),
                  .plan = {}};
  Facts here = facts(data_dir());
  give_ci_status(options.ci_status, planned.book, here);
  note_change(planned.book, here);
  planned.plan = make_plan(planned.book, here, {options.only, options.skip});
  return planned;
}

std::string selection_text(const std::vector<std::string>& only, const Plan& plan) {
  std::string text = joined(only);
  if (!plan.added.empty())
    text +=
        "; also " + joined(plan.added) + ", which " + (only.size() == 1 ? "it needs" : "they need");
  return text;
}

void check_switches(const Plan& plan) {
  std::vector<std::string> kinds, blind;  // of nsa-worker; programs that look at no switch
  for (const PlannedPhase& phase : plan.phases) {
    if (!will_run(phase) || phase.program == "builtin") continue;
    if (phase.program == "nsa-train") return;  // it refuses what it ignores
    const bool worker = phase.program == "nsa-worker";
    auto& names = worker ? kinds : blind;
    const std::string& name = worker ? phase.kind : phase.program;
    if (!contains(names, name)) names.push_back(name);
  }
  const std::string ignored = ignored_by_all(program_dir(), kinds, blind);
  if (!ignored.empty()) throw ConfigError(ignored);
}

}  // namespace harness::cli

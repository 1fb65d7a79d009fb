#include "harness/cli/planning.h"

#include "harness/cli/paths.h"
#include "harness/provenance/environment.h"
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

}  // namespace

Planned plan_here(const Options& options) {
  if (options.runbook.empty())
    throw ConfigError("no runbook is named; give --runbook NAME (nsa-validate list shows them)");
  Planned planned{.book = load_runbook(options.runbook, configs_dir(options.configs), options.set),
                  .plan = {}};
  Facts here = facts(data_dir());
  give_ci_status(options.ci_status, planned.book, here);
  planned.plan = make_plan(planned.book, here, {options.only, options.skip});
  return planned;
}

}  // namespace harness::cli

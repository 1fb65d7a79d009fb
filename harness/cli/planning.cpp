#include "harness/cli/planning.h"

#include "harness/cli/paths.h"
#include "harness/provenance/environment.h"
#include "harness/schema/error.h"

namespace harness::cli {

Planned plan_here(const Options& options) {
  if (options.runbook.empty())
    throw ConfigError("no runbook is named; give --runbook NAME (nsa-validate list shows them)");
  Planned planned{.book = load_runbook(options.runbook, configs_dir(options.configs), options.set),
                  .plan = {}};
  planned.plan = make_plan(planned.book, facts(data_dir()), {options.only, options.skip});
  return planned;
}

}  // namespace harness::cli

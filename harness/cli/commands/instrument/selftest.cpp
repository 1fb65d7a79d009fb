#include <cstdio>
#include <filesystem>

#include "base/text/plain_text.h"
#include "harness/cli/commands/commands.h"
#include "harness/cli/paths.h"
#include "harness/evidence/derive/derive.h"
#include "harness/evidence/storage/run_folder.h"
#include "harness/fault_injection/injected_faults.h"

namespace harness::cli {
namespace fs = std::filesystem;
namespace {

/// The matrix as lines of text.
void print_matrix(const Results& results) {
  for (const auto& table : results.tables)
    if (table.value("id", "") == "selftest.catch_matrix")
      for (const auto& row : table["rows"])
        std::printf("  %-4s %-20s %-22s %-12s %s\n", row[0].get<std::string>().c_str(),
                    row[2].get<std::string>().c_str(), row[3].get<std::string>().c_str(),
                    row[4].get<std::string>().c_str(),
                    base::plain_text(row[1].get<std::string>()).c_str());
}

}  // namespace

int selftest_command(const Options& options) {
  Options run = options;
  run.runbook = "selftest";
  run.command = "run";
  if (!options.faults.empty()) {
    chosen_faults(options.faults);  // a name that is none is an error of the call
    run.set = {"selftest.faults=" + nlohmann::json(options.faults).dump()};
  }
  if (run.out.empty()) run.out = new_run_folder(run.runbook).string();
  const int exit_code = run_command(run);
  const fs::path results_file = fs::path(run.out) / "results.json";
  if (!fs::exists(results_file)) return exit_code;
  const Results results = read_results(RunFolder(run.out));
  if (!options.quiet && !options.json) print_matrix(results);
  return exit_code;
}

}  // namespace harness::cli

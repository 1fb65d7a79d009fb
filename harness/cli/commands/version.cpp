#include "harness/cli/commands/version.h"

#include "harness/provenance/build/build_id.h"

namespace harness::cli {

std::string version_text(const std::filesystem::path& folder) {
  const std::string name = "nsa-validate ";
  try {
    const auto build = read_build_id(folder);
    if (!build) return name + "build unknown: no build_id.json beside the program";
    const size_t changed = build->dirty.size();
    return name + "build " + build->id + ", commit " +
           (build->commit.empty() ? "unknown" : build->commit) +
           (changed == 0 ? "" : " (" + std::to_string(changed) + " files changed)");
  } catch (const std::exception& problem) {
    return name + "build unknown: " + problem.what();
  }
}

}  // namespace harness::cli

#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "harness/runbook/runbook.h"

namespace harness {

using Kinds = std::map<std::string, KindSpec>;

/// A checked, effective runbook and what it needs to be planned.
struct LoadedRunbook {
  Runbook runbook;  ///< `extends` merged, --set applied, every argument of every phase filled in
  Kinds kinds;      ///< the kinds it uses, with the figures of its device (kinds.json of a run)
  std::vector<Deviation> deviations;  ///< one per --set of a key that is not `free`
  std::string file;                   ///< the runbook file
};

/// Reads configs/runbooks/NAME.json below `configs_dir` (or the path given, when it has a / or ends
/// in .json), merges what it extends, applies `overrides` ("phase.key=value") and checks everything
/// that can be checked without a machine. Throws ConfigError with file, line, column and the
/// nearest name.
LoadedRunbook load_runbook(const std::string& name_or_path,
                           const std::filesystem::path& configs_dir,
                           const std::vector<std::string>& overrides = {});

/// The same with kinds that were loaded before, for callers that load many runbooks.
LoadedRunbook load_runbook(const std::string& name_or_path,
                           const std::filesystem::path& configs_dir,
                           const std::vector<std::string>& overrides, const Kinds& all);

/// Every configs/kinds/KIND.json, by kind. Throws ConfigError.
Kinds load_kinds(const std::filesystem::path& configs_dir);

/// Names of configs/runbooks/*.json, sorted.
std::vector<std::string> list_runbooks(const std::filesystem::path& configs_dir);

/// Kind and program behind `run`: "nsa-worker:ranges_ab" -> {nsa-worker, ranges_ab, ""},
/// "nsa-tests:Oracle*" -> {nsa-tests, nsa-tests, "Oracle*"}, "nsa-train" -> {nsa-train, nsa-train,
/// ""}. Throws ConfigError.
struct RunTarget {
  std::string program, kind, filter;
};
RunTarget parse_run(const std::string& run);

}  // namespace harness

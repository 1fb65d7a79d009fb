#pragma once
#include <filesystem>
#include <vector>

#include "harness/evidence/error.h"
#include "harness/evidence/storage/run_folder.h"
#include "harness/results/results.h"

namespace harness {

/// Results and what is wrong with the evidence they rest on.
struct Derived {
  Results results;
  std::vector<EvidenceError> problems;  ///< not empty: the verdict is NO-GO (evidence)
};

/// The content of every report, from the files of a run alone: a pure function, no clock, no
/// machine, no environment. The same files give the same results, and `results_text` the same
/// bytes. A damaged phase becomes a problem and a finding, and the rest is derived all the same; a
/// damaged run.json, runbook.json, kinds.json, plan.json or environment.json throws EvidenceError.
Derived derive_all(const RunFolder& run);

/// As above, results only.
Results derive(const std::filesystem::path& run_dir);

/// Bytes of results.json.
std::string results_text(const Results& results);

/// results.json of a finished run. Throws EvidenceError with line and column when it is cut off or
/// not of this schema.
Results read_results(const RunFolder& run);

}  // namespace harness

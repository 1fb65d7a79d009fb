#pragma once
#include <optional>
#include <string>
#include <vector>

#include "harness/trace/analysis/path_proof.h"
#include "nsa/diagnostics/run_record.h"
#include "suites/phases/phase.h"

namespace suites {

/// What a stage's range must and must not launch when `backend` was asked for; nothing where its
/// kernels cannot be recognised by name (rope, gate, backward passes of library operators, ...).
/// `stage` and `backend` as in records of what ran. `detail` is the variant that ran and names its
/// code: the kernels for sm_80 and sm_90 have the same names in different namespaces.
std::optional<harness::trace::PathRule> path_rule(const std::string& stage,
                                                  const std::string& backend,
                                                  const std::string& detail = "");

/// Proves by kernel names that every stage in `ran` ran what was asked for: a check
/// "path/PREFIXSTAGE" each, code PATH_PROOF, "requested X, ran Y; range R ran KERNELS". Rows of the
/// proof are added to `rows` (arm, stage, requested, ran, kernels). Stages that ran several
/// backends are judged by what was requested.
void prove_paths(const PhaseCase& one, const std::string& arm, const harness::trace::Trace& trace,
                 const harness::trace::Attribution& found, const std::vector<nsa::RanBackend>& ran,
                 nlohmann::json& rows);

}  // namespace suites

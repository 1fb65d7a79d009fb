#pragma once
#include <optional>
#include <string>
#include <vector>

#include "harness/trace/analysis/path_proof.h"
#include "nsa/diagnostics/run_record.h"
#include "suites/phases/phase.h"

namespace suites {

/// What a stage's range must and must not launch when `backend` was asked for; nothing where its
/// kernels cannot be told by their names (rope, gate, backward passes of library operators, ...).
/// `stage` and `backend` as in records of what ran; `detail`: the variant that ran, which says by
/// which code: that of sm_80 and that of sm_90 have kernels of the same names in namespaces of
/// their own.
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

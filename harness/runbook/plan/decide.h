#pragma once
#include "harness/runbook/plan/plan.h"

namespace harness {

/// Decides whether this machine runs `phase` (decision, cause, reason), given the phases already in
/// `plan`, which hold all that comes `before` it (phases_before). Adds the deviations of phases
/// that are skipped or run although a requirement is unmet.
void decide_phase(const PhaseSpec& spec, const std::vector<std::string>& before, const Facts& facts,
                  const PhaseSelection& selection, Plan& plan, PlannedPhase& phase);

}  // namespace harness

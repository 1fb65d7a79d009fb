#pragma once
#include <cstddef>
#include <vector>

#include "harness/runbook/runbook.h"

namespace harness {

/// Indices into Runbook::phases.
struct PhaseOrder {
  std::vector<size_t> order;  ///< needs first, else display order; empty when there is a cycle
  std::vector<size_t> cycle;  ///< each needs the next, the last the first; empty when there is none
};

/// Phases that must come before `phase`: those it needs, and those that declare or feed a criterion
/// it needs. Names that do not exist, and the phase itself, are left out.
std::vector<std::string> phases_before(const Runbook& runbook, const PhaseSpec& phase);

/// Orders the phases. Needs that name no phase are ignored (they are an error of their own).
PhaseOrder order_phases(const Runbook& runbook);

}  // namespace harness

#pragma once
#include <vector>

#include "harness/results/results.h"

namespace harness {

/// What a check found must not be lost because no criterion asks for it: a deviation for each
/// finding of `failed` (check_findings of all phases) that is an immediate one, unless a criterion
/// of its phase states that something is amiss: one that decides and is not PASS, or one for
/// information that FAILs.
std::vector<Deviation> unjudged_checks(const std::vector<Finding>& failed,
                                       const std::vector<CriterionResult>& criteria);

}  // namespace harness

#pragma once
#include <c10/core/ScalarType.h>

#include <string>
#include <vector>

#include "nsa/backend/branch_choice.h"

namespace suites {

/// A call that the table answers for.
struct CoveredCall {
  c10::ScalarType type = c10::ScalarType::BFloat16;
  nsa::WholeCall call;
};
/// All of them: every type, head dims, group, number and size of blocks.
std::vector<CoveredCall> coverage_calls();

/// What runs where: kernels or operators for types, head dims, groups, blocks and cards, by the
/// functions that choose for a call; no card is asked.
std::string kernel_coverage(bool markdown);

}  // namespace suites

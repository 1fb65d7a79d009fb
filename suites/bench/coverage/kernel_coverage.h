#pragma once
#include <string>

namespace suites {

/// What runs where: kernels or operators for types, head dims, groups, blocks and cards, by the
/// functions that choose for a call; no card is asked.
std::string kernel_coverage(bool markdown);

}  // namespace suites

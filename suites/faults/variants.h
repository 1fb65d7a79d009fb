#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "suites/faults/candidate.h"

namespace suites {

/// One way in which nsa/ offers to run the operator: a backend of a branch, a mode, packed
/// documents. All must give the same result within the tolerance table.
struct Variant {
  std::string_view name;  ///< part of test names; letters, digits and '_'
  Candidate (*make)();
  bool needs_cuda = false;  ///< elsewhere something else would run
  bool kernels = false;     ///< strict: sizes of kKernelCase in bf16 and fp16 only
};

/// Every variant, the default one first. A new backend or mode is one line here.
const std::vector<Variant>& variants();

}  // namespace suites

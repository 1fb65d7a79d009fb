#pragma once
#include <string>
#include <vector>

#include "suites/reference_cases/case.h"

namespace suites {

/// What one case showed.
struct Judgement {
  std::vector<std::string> compared;  ///< "<stage>: <tensor>", one entry a comparison
  std::vector<std::string> failures;  ///< the same with the first difference
};

/// Runs the oracle on the case and compares every expected tensor: once end to end, and each stage
/// on the expected values of the stage before. Floats to 1e-12 of the row's scale, indices and
/// counts bit for bit; selected attention and what follows it on the expected ranges. An expected
/// tensor nothing compares is a failure.
Judgement judge(const ReferenceCase& reference_case);

}  // namespace suites

#pragma once
#include <string>
#include <vector>

#include "harness/trace/analysis/attribution.h"

namespace harness::trace {

/// What a range must and must not launch. Patterns are parts of short kernel names, because
/// template arguments name libraries that did not run; `|` separates alternatives.
struct PathRule {
  std::string range;                   ///< name of a range
  std::vector<std::string> expected;   ///< each must be part of at least one kernel's name
  std::vector<std::string> forbidden;  ///< none may be part of any
};

struct PathProof {
  bool ok = false;
  std::string detail = {};  ///< what is missing or was not to run, and the kernels that ran
  std::vector<std::string> kernels = {};  ///< short names, by time spent
};

/// Judges the kernels that were asked for in the range or in ranges within it, in all steps. A
/// range that launched no kernel proves nothing: not ok. Neither do steps with kernels of CUDA
/// graphs whose capture was not seen.
PathProof prove_path(const Trace& trace, const Attribution& found, const PathRule& rule);

}  // namespace harness::trace

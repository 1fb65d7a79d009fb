#pragma once
#include <optional>
#include <string>
#include <vector>

#include "suites/conformance/case_config.h"

/// The operator cases that targets and peers are known for. Torch-free.
namespace suites {

/// Milliseconds of one pass; nothing where nobody measured or promised any.
struct TargetFigures {
  std::optional<double> floor, target, stretch;
  std::optional<double> peer;  ///< best open NSA implementation that ran on an H200
};

struct TargetCase {
  std::string id;  ///< "paper_8k"
  CaseConfig config;
  TargetFigures forward, backward;
};

/// The table of the project's targets (one NVIDIA H200, bf16), then the same heads at other lengths
/// for the curves. Compression mean, no rotation, sigmoid gates; K and V shared by the branches.
std::vector<TargetCase> target_cases();

}  // namespace suites

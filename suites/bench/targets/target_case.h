#pragma once
#include <optional>
#include <string>
#include <vector>

#include "suites/conformance/case_config.h"

/// The operator cases that targets and peers are known for. Torch-free.
namespace suites {

/// Milliseconds of one pass; empty where no figure is known.
struct TargetFigures {
  std::optional<double> floor, target, stretch;
  std::optional<double> peer;  ///< best open NSA implementation that ran on an H200
};

struct TargetCase {
  std::string id;  ///< "paper_8k"
  CaseConfig config;
  TargetFigures forward, backward;
};

/// The table of the project's targets (one NVIDIA H200, bf16), then the same heads at other
/// lengths and those of NSA-1B. Compression mean, no rotation, sigmoid gates; K and V shared by the
/// branches.
std::vector<TargetCase> target_cases();

/// These, and groups of 2 and 8 query heads, whose tiles of rows the others do not have: what must
/// give the same bits again and again.
std::vector<TargetCase> repeated_cases();

/// Lengths 1k to 256k of the paper's heads and of m7c_125m's, for the curves; without targets.
std::vector<TargetCase> scaling_cases();

/// Lengths 2k to 64k of m7c_125m's heads and of the paper's, for a CPU; without targets.
std::vector<TargetCase> cpu_cases();

/// A decode step of one layer behind `config.tokens` tokens of `config.batch` sequences.
struct DecodeCase {
  std::string id;  ///< "64k_B32"
  CaseConfig config;
  TargetFigures step;
  int64_t new_tokens = 1;  ///< of a sequence in a step
};

/// The table of the project's targets, then other contexts and batches, and steps of several
/// tokens.
std::vector<DecodeCase> decode_cases();

}  // namespace suites

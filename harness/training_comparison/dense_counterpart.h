#pragma once
#include <cstdint>
#include <optional>
#include <vector>

namespace harness {

/// Peak memory of a training run, and the shape of its steps.
struct StepMemory {
  int64_t seq_len = 0;  ///< tokens of a row
  int64_t tokens = 0;   ///< of a step
  double peak_mib = 0;
};

/// How much more memory a token takes in longer rows: the largest quotient of MiB per token, a run
/// over one whose rows are shorter and whose steps have no more tokens (with more, what is there
/// once in every run would count less). Memory that is linear in the length gives 1 or less; empty
/// where no two runs can be compared.
std::optional<double> memory_growth(const std::vector<StepMemory>& runs);

}  // namespace harness

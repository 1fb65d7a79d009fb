#include "harness/training_comparison/dense_counterpart.h"

#include <algorithm>

namespace harness {

std::optional<double> memory_growth(const std::vector<StepMemory>& runs) {
  std::optional<double> most;
  const auto per_token = [](const StepMemory& run) {
    return run.peak_mib / static_cast<double>(run.tokens);
  };
  for (const StepMemory& base : runs)
    for (const StepMemory& longer : runs) {
      if (longer.seq_len <= base.seq_len || longer.tokens < base.tokens) continue;
      const double growth = per_token(longer) / per_token(base);
      most = most ? std::max(*most, growth) : growth;
    }
  return most;
}

}  // namespace harness

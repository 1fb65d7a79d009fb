#include "harness/training_comparison/loss_gap.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace harness {
namespace {

constexpr double kLowShare = 0.025;

std::string steps_text(const LossCurve& curve) {
  return curve.empty() ? "no step" : "step " + std::to_string(curve.rbegin()->first);
}

}  // namespace

LossGap loss_gap(const LossCurve& first, const LossCurve& second, int64_t tail) {
  LossGap gap;
  if (first.empty() || second.empty() || first.rbegin()->first != second.rbegin()->first) {
    gap.problem = "the curves end at " + steps_text(first) + " and " + steps_text(second);
    return gap;
  }
  std::vector<double> differences;
  const int64_t last = first.rbegin()->first;
  for (int64_t step = last - tail + 1; step <= last; ++step) {
    const auto a = first.find(step), b = second.find(step);
    if (a == first.end() || b == second.end()) {
      gap.problem =
          "step " + std::to_string(step) + " of the last " + std::to_string(tail) + " is missing";
      return gap;
    }
    differences.push_back(a->second - b->second);
  }
  gap.steps = tail;
  gap.mean_nat = std::accumulate(differences.begin(), differences.end(), 0.0) /
                 static_cast<double>(differences.size());
  std::sort(differences.begin(), differences.end());
  const auto count = static_cast<double>(differences.size());
  const auto low = static_cast<size_t>(std::floor(kLowShare * count));
  gap.lo_nat = differences[low];
  gap.hi_nat = differences[differences.size() - 1 - low];
  return gap;
}

}  // namespace harness

#pragma once
#include <cstdint>
#include <span>
#include <vector>

/// Where a series of figures steps: piecewise constant in the log, by least absolute deviations.
namespace harness::stats {

struct Step {
  int64_t at = 0;                ///< index of the first figure on the new level
  double before = 0, after = 0;  ///< medians of the two levels
};

/// Steps of a series of positive figures in the order of time. The number of levels is the one with
/// the smallest ln(s0 + mean |residual|) + 4 k ln(n) / n over k steps (a BIC for absolute
/// deviations; s0, a hundredth of the margin, keeps an exact fit finite); a level has at least two
/// figures, so that one odd run is no step. Fewer than four figures have none. Throws
/// std::invalid_argument for a figure that is not finite and positive.
std::vector<Step> find_steps(std::span<const double> figures, double margin = 0.01);

}  // namespace harness::stats

#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "harness/stats/order_statistics.h"

/// Wilcoxon's signed-rank statistic W: the sum of the ranks of the positive differences among
/// |d_1|, ..., |d_n|. Under symmetry about zero each rank is positive with probability 1/2, so the
/// distribution is that of a random subset sum of {1, ..., n}: exact, no assumption on the shape.
namespace harness::stats {

/// P(W = w) for w = 0, ..., n(n+1)/2. Exact in double for n <= 50, relative error < 1e-13 beyond.
std::vector<double> signed_rank_pmf(int64_t n);

/// P(W <= w).
double signed_rank_cdf(int64_t n, int64_t w);

/// Largest c with 2 P(W <= c) <= 1 - level; none when even c = 0 does not attain the level
/// (n < 8 for 99 %, n < 6 for 95 %).
std::optional<int64_t> signed_rank_critical(int64_t n, double level);

/// The n(n+1)/2 averages (d_i + d_j)/2, i <= j, ascending.
std::vector<double> walsh_averages(std::span<const double> differences);

/// Hodges-Lehmann estimate of the centre: the median of the Walsh averages.
double hodges_lehmann(std::span<const double> differences);

/// Interval of the centre that the signed-rank test at `level` does not reject: with the Walsh
/// averages W_(1) <= ... <= W_(M) and the critical value c it is [W_(c+1), W_(M-c)].
/// None when n is too small for the level. Ties make it conservative.
std::optional<Interval> signed_rank_interval(std::span<const double> differences, double level);

}  // namespace harness::stats

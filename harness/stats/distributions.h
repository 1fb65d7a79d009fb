#pragma once
#include <cstdint>

namespace harness::stats {

/// P(Z <= z), Z standard normal.
double normal_cdf(double z);

/// z with P(Z <= z) = p, 0 < p < 1; absolute error < 1e-10.
double normal_quantile(double p);

/// t with P(T <= t) = p, T Student with `degrees` > 0 degrees of freedom; relative error < 1e-9.
double student_t_quantile(double p, double degrees);

/// Clopper-Pearson: the largest share of hits that `hits` of `trials` leave possible at one-sided
/// `confidence` (P(at most `hits`) = 1 - confidence), and the smallest. 0 <= hits <= trials, trials
/// >= 1; absolute error < 1e-12.
double share_upper_bound(int64_t hits, int64_t trials, double confidence);
double share_lower_bound(int64_t hits, int64_t trials, double confidence);

}  // namespace harness::stats

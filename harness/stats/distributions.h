#pragma once

namespace harness::stats {

/// P(Z <= z), Z standard normal.
double normal_cdf(double z);

/// z with P(Z <= z) = p, 0 < p < 1; absolute error < 1e-10.
double normal_quantile(double p);

/// t with P(T <= t) = p, T Student with `degrees` > 0 degrees of freedom; relative error < 1e-9.
double student_t_quantile(double p, double degrees);

}  // namespace harness::stats

#include "harness/stats/distributions.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace harness::stats {
namespace {

void require_probability(double p, const char* what) {
  if (!(p > 0 && p < 1))
    throw std::invalid_argument(std::string(what) + ": p must be in (0, 1), got " +
                                std::to_string(p));
}

/// Continued fraction of the incomplete beta function (DLMF 8.17.22), modified Lentz.
double beta_fraction(double a, double b, double x) {
  const double tiny = 1e-300;
  double c = 1, d = 1 - (a + b) * x / (a + 1);
  if (std::abs(d) < tiny) d = tiny;
  d = 1 / d;
  double result = d;
  for (int m = 1; m <= 10000; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    double step = 1;
    for (const double term : {even, odd}) {
      d = 1 + term * d;
      c = 1 + term / c;
      if (std::abs(d) < tiny) d = tiny;
      if (std::abs(c) < tiny) c = tiny;
      d = 1 / d;
      step = c * d;
      result *= step;
    }
    if (std::abs(step - 1) < 1e-15) break;
  }
  return result;
}

/// I_x(a, b), the regularised incomplete beta function.
double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) +
                                a * std::log(x) + b * std::log1p(-x));
  if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(a, b, x) / a;
  return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

/// P(T > t) for t >= 0.
double student_t_tail(double t, double degrees) {
  return 0.5 * incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t));
}

}  // namespace

double normal_cdf(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

double normal_quantile(double p) {
  require_probability(p, "normal_quantile");
  double lo = -40, hi = 40;
  for (int i = 0; i < 60; ++i) {
    const double mid = 0.5 * (lo + hi);
    (normal_cdf(mid) < p ? lo : hi) = mid;
  }
  return 0.5 * (lo + hi);
}

double student_t_quantile(double p, double degrees) {
  require_probability(p, "student_t_quantile");
  if (!(degrees > 0))
    throw std::invalid_argument("student_t_quantile: degrees must be positive, got " +
                                std::to_string(degrees));
  if (p < 0.5) return -student_t_quantile(1 - p, degrees);
  double lo = 0, hi = 1;
  while (student_t_tail(hi, degrees) > 1 - p) hi *= 2;
  for (int i = 0; i < 60; ++i) {
    const double mid = 0.5 * (lo + hi);
    (student_t_tail(mid, degrees) > 1 - p ? lo : hi) = mid;
  }
  return 0.5 * (lo + hi);
}

namespace {

/// P(at most `hits`) of `trials` at this share.
double binomial_cdf(int64_t hits, int64_t trials, double share) {
  if (hits >= trials || share <= 0) return 1;
  if (share >= 1) return 0;
  const auto n = static_cast<double>(trials);
  double sum = 0;
  for (int64_t k = 0; k <= hits; ++k) {
    const auto x = static_cast<double>(k);
    sum += std::exp(std::lgamma(n + 1) - std::lgamma(x + 1) - std::lgamma(n - x + 1) +
                    x * std::log(share) + (n - x) * std::log1p(-share));
  }
  return std::min(sum, 1.0);
}

}  // namespace

double share_upper_bound(int64_t hits, int64_t trials, double confidence) {
  if (trials < 1 || hits < 0 || hits > trials)
    throw std::invalid_argument("hits must be from 0 to trials >= 1, got " + std::to_string(hits) +
                                " of " + std::to_string(trials));
  if (!(confidence > 0 && confidence < 1))
    throw std::invalid_argument("confidence must be between 0 and 1, got " +
                                std::to_string(confidence));
  if (hits == trials) return 1;
  double lo = 0, hi = 1;
  for (int i = 0; i < 60; ++i) {
    const double middle = (lo + hi) / 2;
    (binomial_cdf(hits, trials, middle) > 1 - confidence ? lo : hi) = middle;
  }
  return hi;
}

double share_lower_bound(int64_t hits, int64_t trials, double confidence) {
  return 1 - share_upper_bound(trials - hits, trials, confidence);
}

}  // namespace harness::stats

#include "harness/stats/signed_rank.h"

#include <algorithm>
#include <numeric>

namespace harness::stats {

std::vector<double> signed_rank_pmf(int64_t n) {
  std::vector<double> p(static_cast<size_t>(n * (n + 1) / 2 + 1), 0.0);
  p[0] = 1;
  size_t top = 0;  // largest sum of the ranks so far
  for (size_t rank = 1; rank <= static_cast<size_t>(n); ++rank) {
    top += rank;
    for (size_t w = top + 1; w-- > 0;) p[w] = 0.5 * (p[w] + (w >= rank ? p[w - rank] : 0.0));
  }
  return p;
}

double signed_rank_cdf(int64_t n, int64_t w) {
  if (w < 0) return 0;
  const std::vector<double> p = signed_rank_pmf(n);
  const size_t end = std::min(p.size(), static_cast<size_t>(w) + 1);
  return std::accumulate(p.begin(), p.begin() + static_cast<ptrdiff_t>(end), 0.0);
}

std::optional<int64_t> signed_rank_critical(int64_t n, double level) {
  if (n < 1) return std::nullopt;
  const std::vector<double> p = signed_rank_pmf(n);
  std::optional<int64_t> critical;
  double below = 0;
  for (size_t c = 0; c < p.size(); ++c) {
    below += p[c];
    if (!(2 * below <= 1 - level)) break;
    critical = static_cast<int64_t>(c);
  }
  return critical;
}

std::vector<double> walsh_averages(std::span<const double> differences) {
  require_finite(differences, "walsh_averages");
  std::vector<double> averages;
  averages.reserve(differences.size() * (differences.size() + 1) / 2);
  for (size_t i = 0; i < differences.size(); ++i)
    for (size_t j = i; j < differences.size(); ++j)
      averages.push_back(0.5 * (differences[i] + differences[j]));
  std::ranges::sort(averages);
  return averages;
}

double hodges_lehmann(std::span<const double> differences) {
  return median(walsh_averages(differences));
}

std::optional<Interval> signed_rank_interval(std::span<const double> differences, double level) {
  const std::vector<double> walsh = walsh_averages(differences);
  const auto n = static_cast<int64_t>(differences.size());
  const std::optional<int64_t> c = signed_rank_critical(n, level);
  if (!c) return std::nullopt;
  const auto cut = static_cast<size_t>(*c);
  return Interval{walsh[cut], walsh[walsh.size() - 1 - cut], 1 - 2 * signed_rank_cdf(n, *c)};
}

}  // namespace harness::stats

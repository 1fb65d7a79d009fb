#include "harness/stats/steps.h"

#include <cmath>
#include <limits>

#include "harness/stats/order_statistics.h"

namespace harness::stats {
namespace {

constexpr size_t kMostSteps = 8;
constexpr size_t kShortest = 2;  ///< figures of a level

/// Sum of |y - median| of y[begin, end).
double deviation(const std::vector<double>& y, size_t begin, size_t end) {
  const std::span<const double> part(y.data() + begin, end - begin);
  const double middle = median(part);
  double sum = 0;
  for (const double value : part) sum += std::abs(value - middle);
  return sum;
}

/// For every number of levels the best cuts, by dynamic programming over the end of the last level.
class Fit {
 public:
  explicit Fit(const std::vector<double>& y) : n_(y.size()), cost_(n_ + 1) {
    for (size_t begin = 0; begin < n_; ++begin) {
      cost_[begin].resize(n_ + 1, kNever);
      for (size_t end = begin + kShortest; end <= n_; ++end)
        cost_[begin][end] = deviation(y, begin, end);
    }
    best_.emplace_back(n_ + 1, kNever);
    from_.emplace_back(n_ + 1, 0);
    for (size_t end = 1; end <= n_; ++end) best_[0][end] = cost_[0][end];
  }

  double add_level() {
    std::vector<double> best(n_ + 1, kNever);
    std::vector<size_t> from(n_ + 1, 0);
    for (size_t end = 1; end <= n_; ++end)
      for (size_t cut = kShortest; cut + kShortest <= end; ++cut)
        if (const double sum = best_.back()[cut] + cost_[cut][end]; sum < best[end]) {
          best[end] = sum;
          from[end] = cut;
        }
    best_.push_back(best);
    from_.push_back(from);
    return best[n_];
  }
  double one_level() const { return best_[0][n_]; }

  /// Beginnings of the levels after the first.
  std::vector<size_t> cuts(size_t steps) const {
    std::vector<size_t> found;
    for (size_t end = n_, k = steps; k > 0; --k) {
      end = from_[k][end];
      found.insert(found.begin(), end);
    }
    return found;
  }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();
  size_t n_;
  std::vector<std::vector<double>> cost_, best_;
  std::vector<std::vector<size_t>> from_;
};

}  // namespace

std::vector<Step> find_steps(std::span<const double> figures, double margin) {
  const size_t n = figures.size();
  if (n == 0) return {};
  require_positive(figures, "history");
  if (n < 2 * kShortest) return {};
  std::vector<double> y;
  for (const double figure : figures) y.push_back(std::log(figure));
  Fit fit(y);
  const auto count = static_cast<double>(n);
  const auto score = [&](double sum, size_t steps) {
    return std::log(margin / 100 + sum / count) +
           4 * static_cast<double>(steps) * std::log(count) / count;
  };
  size_t chosen = 0;
  double best = score(fit.one_level(), 0);
  for (size_t steps = 1; steps <= kMostSteps && (steps + 1) * kShortest <= n; ++steps)
    if (const double value = score(fit.add_level(), steps); value < best) {
      best = value;
      chosen = steps;
    }
  std::vector<size_t> bounds = fit.cuts(chosen);
  bounds.insert(bounds.begin(), 0);
  bounds.push_back(n);
  std::vector<Step> steps;
  for (size_t i = 1; i + 1 < bounds.size(); ++i)
    steps.push_back({static_cast<int64_t>(bounds[i]),
                     median(figures.subspan(bounds[i - 1], bounds[i] - bounds[i - 1])),
                     median(figures.subspan(bounds[i], bounds[i + 1] - bounds[i]))});
  return steps;
}

}  // namespace harness::stats

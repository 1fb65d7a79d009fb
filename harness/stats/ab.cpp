#include "harness/stats/ab.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>

#include "harness/stats/distributions.h"
#include "harness/stats/signed_rank.h"

namespace harness::stats {

namespace {

/// Times by the round they were taken in; all under 0 when rounds are not known.
using Rounds = std::map<int64_t, std::vector<double>>;

Rounds by_round(const std::vector<double>& times, const std::vector<int64_t>& rounds, bool known) {
  Rounds grouped;
  for (size_t i = 0; i < times.size(); ++i) grouped[known ? rounds[i] : 0].push_back(times[i]);
  return grouped;
}

double mean_log(const std::vector<double>& times) {
  double sum = 0;
  for (const double t : times) sum += std::log(t);
  return sum / static_cast<double>(times.size());
}

/// What both arms measured side by side.
struct CommonRounds {
  std::vector<double> baseline, candidate;  ///< their times
  std::vector<double> log_ratios;           ///< one a round
};

CommonRounds common_rounds(const ArmTimes& times) {
  const bool known = times.baseline_rounds.size() == times.baseline.size() &&
                     times.candidate_rounds.size() == times.candidate.size();
  const Rounds baseline = by_round(times.baseline, times.baseline_rounds, known);
  const Rounds candidate = by_round(times.candidate, times.candidate_rounds, known);
  CommonRounds common;
  for (const auto& [round, b] : baseline) {
    const auto found = candidate.find(round);
    if (found == candidate.end()) continue;
    const std::vector<double>& c = found->second;
    common.baseline.insert(common.baseline.end(), b.begin(), b.end());
    common.candidate.insert(common.candidate.end(), c.begin(), c.end());
    common.log_ratios.push_back(mean_log(c) - mean_log(b));
  }
  if (common.log_ratios.empty())
    throw std::invalid_argument("process '" + times.process +
                                "' has no round in which both arms were measured");
  return common;
}

}  // namespace

std::vector<PairedRatio> paired_log_ratios(std::span<const ArmTimes> processes) {
  std::vector<PairedRatio> ratios;
  for (const ArmTimes& times : processes) {
    require_positive(times.baseline, "baseline arm in process '" + times.process + "'");
    require_positive(times.candidate, "candidate arm in process '" + times.process + "'");
    const CommonRounds common = common_rounds(times);
    const double baseline = median(common.baseline), candidate = median(common.candidate);
    PairedRatio ratio{times.process, baseline, candidate, std::log(candidate / baseline)};
    if (common.log_ratios.size() >= kRoundsForMedian) {
      ratio.log_ratio = median(common.log_ratios);
      ratio.rounds = common.log_ratios.size();
    }
    ratios.push_back(ratio);
  }
  return ratios;
}

std::string_view ab_verdict_name(AbVerdict verdict) {
  switch (verdict) {
    case AbVerdict::kFaster:
      return "FASTER";
    case AbVerdict::kSlower:
      return "SLOWER";
    case AbVerdict::kEquivalent:
      return "EQUIVALENT";
    case AbVerdict::kInconclusive:
      break;
  }
  return "INCONCLUSIVE";
}

NoiseFloor noise_floor(std::span<const double> aa_log_ratios) {
  require_finite(aa_log_ratios, "A/A log ratios");
  NoiseFloor noise;
  const auto n = static_cast<double>(aa_log_ratios.size());
  if (const auto interval = signed_rank_interval(aa_log_ratios, kVerdictLevel)) {
    noise.floor = std::max(std::abs(interval->lo), std::abs(interval->hi));
  } else {
    for (const double r : aa_log_ratios) noise.floor = std::max(noise.floor, std::abs(r));
  }
  if (n < 2) return noise;
  double mean = 0, squares = 0;
  for (const double r : aa_log_ratios) mean += r / n;
  for (const double r : aa_log_ratios) squares += (r - mean) * (r - mean);
  noise.sd = std::sqrt(squares / (n - 1));
  const double alpha = 1 - kVerdictLevel;
  noise.mde = (student_t_quantile(1 - alpha / 2, n - 1) + student_t_quantile(0.8, n - 1)) *
              noise.sd / std::sqrt(n);
  return noise;
}

AbVerdict ab_verdict(const std::optional<Interval>& interval, double margin, double indifference) {
  if (!interval) return AbVerdict::kInconclusive;
  if (interval->hi < -margin) return AbVerdict::kFaster;
  if (interval->lo > margin) return AbVerdict::kSlower;
  if (interval->lo >= -indifference && interval->hi <= indifference) return AbVerdict::kEquivalent;
  return AbVerdict::kInconclusive;
}

AbResult compare_arms(std::span<const double> log_ratios, double margin, double floor,
                      double level) {
  AbResult result;
  result.log_ratio = hodges_lehmann(log_ratios);
  result.verdict_interval = signed_rank_interval(log_ratios, level);
  result.shown_interval = signed_rank_interval(log_ratios, kShownLevel);
  result.indifference = std::log1p(margin);
  result.margin = std::max(result.indifference, floor);
  result.verdict = ab_verdict(result.verdict_interval, result.margin, result.indifference);
  return result;
}

}  // namespace harness::stats

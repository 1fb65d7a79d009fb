#include "harness/stats/ab.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "harness/stats/distributions.h"
#include "harness/stats/signed_rank.h"

namespace harness::stats {

namespace {

struct MeanLog {
  double sum = 0, count = 0;
  double value() const { return sum / count; }
};

std::map<int64_t, MeanLog> by_round(const std::vector<double>& times,
                                    const std::vector<int64_t>& rounds) {
  std::map<int64_t, MeanLog> means;
  if (rounds.size() != times.size()) return means;
  for (size_t i = 0; i < times.size(); ++i) {
    means[rounds[i]].sum += std::log(times[i]);
    means[rounds[i]].count += 1;
  }
  return means;
}

/// Log ratio of every round that holds both arms.
std::vector<double> round_log_ratios(const ArmTimes& times) {
  const auto baseline = by_round(times.baseline, times.baseline_rounds);
  const auto candidate = by_round(times.candidate, times.candidate_rounds);
  std::vector<double> ratios;
  for (const auto& [round, mean] : baseline)
    if (const auto other = candidate.find(round); other != candidate.end())
      ratios.push_back(other->second.value() - mean.value());
  return ratios;
}

}  // namespace

std::vector<PairedRatio> paired_log_ratios(std::span<const ArmTimes> processes) {
  std::vector<PairedRatio> ratios;
  for (const ArmTimes& times : processes) {
    require_positive(times.baseline, "baseline arm in process '" + times.process + "'");
    require_positive(times.candidate, "candidate arm in process '" + times.process + "'");
    const double baseline = median(times.baseline), candidate = median(times.candidate);
    PairedRatio ratio{times.process, baseline, candidate, std::log(candidate / baseline)};
    if (const auto rounds = round_log_ratios(times); rounds.size() >= kRoundsForMedian) {
      ratio.log_ratio = median(rounds);
      ratio.rounds = rounds.size();
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

#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/stats/order_statistics.h"

/// A/B: a pair is one process with both arms resident; the process is the unit of analysis, because
/// samples of one process share its memory layout, clocks and neighbours.
///
/// Everything is computed on log ratios of times, r = ln(candidate / baseline): r < 0 is faster.
/// The figure shown is the speed-up baseline / candidate = exp(-r): > 1 is faster.
namespace harness::stats {

/// Indifference margins, as fractions of the baseline's time.
inline constexpr double kGpuMargin = 0.01;
inline constexpr double kCpuMargin = 0.05;

/// Times of both arms in one process, in one unit.
struct ArmTimes {
  std::string process;
  std::vector<double> baseline;
  std::vector<double> candidate;
  /// The round of each time; empty when not known.
  std::vector<int64_t> baseline_rounds = {}, candidate_rounds = {};
};

/// From so many rounds on, a process is judged round by round.
inline constexpr size_t kRoundsForMedian = 5;

struct PairedRatio {
  std::string process;
  double baseline_median = 0;
  double candidate_median = 0;
  double log_ratio = 0;  ///< ln(candidate / baseline)
  size_t rounds = 0;     ///< rounds it is the median of; 0: of the arms' medians
};

/// One log ratio a process, from the rounds in which both arms were measured: an arm that stopped
/// early is not compared with what the other one measured without it. With kRoundsForMedian such
/// rounds it is the median of theirs, each the mean log time of the candidate less that of the
/// baseline: what slows a machine down for longer than a round then slows both arms of it. With
/// fewer it is that of the arms' medians. Throws std::invalid_argument naming arm, process and
/// sample when a time is NaN, infinite, zero or negative, an arm has none, or no round has both.
std::vector<PairedRatio> paired_log_ratios(std::span<const ArmTimes> processes);

enum class AbVerdict { kFaster, kSlower, kEquivalent, kInconclusive };
std::string_view ab_verdict_name(
    AbVerdict verdict);  ///< FASTER | SLOWER | EQUIVALENT | INCONCLUSIVE

/// What identical arms show: from A/A log ratios of the same schedule.
struct NoiseFloor {
  double floor = 0;  ///< largest |bound| of the 99 % interval; without one, the largest |log ratio|
  double sd = 0;     ///< standard deviation of the log ratios; 0 for n = 1
  std::optional<double> mde;  ///< minimum detectable effect, see below; none for n < 2
};

/// MDE = (t(1 - alpha/2) + t(0.8)) sd / sqrt(n), Student with n - 1 degrees, alpha = 1 %: the log
/// ratio that a two-sided test would find in 80 % of runs.
NoiseFloor noise_floor(std::span<const double> aa_log_ratios);

struct AbResult {
  double log_ratio = 0;                                      ///< Hodges-Lehmann estimate
  std::optional<Interval> verdict_interval, shown_interval;  ///< of the log ratio, 99 % and 95 %
  double indifference = 0;                                   ///< ln(1 + margin)
  double margin = 0;  ///< in force, log scale: the larger of `indifference` and the noise floor
  AbVerdict verdict = AbVerdict::kInconclusive;
};

/// FASTER when the 99 % interval lies below the margin in force, SLOWER above it, EQUIVALENT inside
/// of the indifference: noise widens what a difference has to exceed, never what counts as equal.
/// Else INCONCLUSIVE (also when n < 8 gives no 99 % interval).
/// `margin` is a fraction of time (0.01 = 1 %), `floor` a log ratio. Ratios must be finite.
/// `level` is that of the verdict interval: a look that is one of several takes `level_each`.
AbResult compare_arms(std::span<const double> log_ratios, double margin, double floor = 0,
                      double level = kVerdictLevel);

/// The verdict of an interval, all on the log scale; no interval: INCONCLUSIVE.
AbVerdict ab_verdict(const std::optional<Interval>& interval, double margin, double indifference);

}  // namespace harness::stats

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "harness/results/number.h"
#include "harness/stats/ab.h"
#include "harness/stats/bootstrap.h"
#include "harness/stats/estimators/estimator_functions.h"
#include "harness/stats/estimators/selection.h"
#include "harness/stats/signed_rank.h"

/// paired_ratio: everything is computed on log ratios of times and shown as speed-ups.
namespace harness::stats {
namespace {

constexpr double kClockTolerance =
    0.015;  // arms whose clocks differ more are not comparable in time
constexpr size_t kBootstrapProcesses = 64;
constexpr size_t kEqualSamples = 8;  ///< so many times with the same bits were not measured

struct Arms {
  std::vector<Series> baseline, candidate;
  std::vector<Series> baseline_again, candidate_again;  ///< A/A; empty: not measured
};

std::vector<Series> arm(const EvidenceView& view, const Source& source, const std::string& name) {
  return select_series(view, source, {name, source.name + "." + name});
}

bool is_time(const std::string& unit) { return unit == "s" || unit == "ms" || unit == "us"; }

/// The same arm measured once more in each round, "ARM.aa".
std::vector<Series> repeat(const EvidenceView& view, const Source& source,
                           const std::string& name) {
  return find_series(view, source, {name + ".aa", source.name + "." + name + ".aa"});
}

/// Evidence from before November 2026 calls the repeat of one arm "aa" or "SOURCE.aa", whichever
/// arm that is. Where there are but two arms it is the baseline's.
std::vector<Series> unnamed_repeat(const MetricSpec& spec, const EvidenceView& view,
                                   const Source& source) {
  const std::string stem = source.name + ".";
  const auto other = [&](const SampleLine& line) {
    if (!line.series.starts_with(stem)) return false;
    const std::string name = line.series.substr(stem.size());
    return name != "aa" && name != spec.arms[0] && name != spec.arms[1];
  };
  for (const GroupEvidence& group : view.groups)
    if (std::ranges::any_of(group.samples, other)) return {};
  return find_series(view, source, {"aa", stem + "aa"});
}

/// A clock gives equal times now and then, not every time. (0 is refused as no time at all.)
void require_measured(const std::vector<Series>& series, const std::string& name) {
  size_t count = 0;
  const double first = series.front().values.front();
  if (!(first > 0)) return;
  for (const Series& one : series) {
    for (const double value : one.values)
      if (!(value == first)) return;
    count += one.values.size();
  }
  if (count >= kEqualSamples)
    throw NoData("STUCK_METRIC: all " + std::to_string(count) + " samples of series '" + name +
                 "' are " + format_number(first) + " " + series.front().unit +
                 ", which no clock measures");
}

Arms select_arms(const MetricSpec& spec, const EvidenceView& view) {
  if (spec.arms.size() != 2) throw NoData("the metric must name two arms, baseline and candidate");
  const Source source = parse_source(spec.source);
  Arms arms{arm(view, source, spec.arms[0]), arm(view, source, spec.arms[1]),
            repeat(view, source, spec.arms[0]), repeat(view, source, spec.arms[1])};
  if (arms.baseline_again.empty() && arms.candidate_again.empty())
    arms.baseline_again = unnamed_repeat(spec, view, source);
  if (arms.baseline.front().unit != arms.candidate.front().unit)
    throw NoData("arms are measured in '" + arms.baseline.front().unit + "' and '" +
                 arms.candidate.front().unit + "'");
  // Of a rate the larger one is the faster, and every verdict would be turned round.
  if (const std::string& unit = arms.baseline.front().unit; !is_time(unit))
    throw NoData("arms are measured in '" + unit + "'; a speed-up is one of times: s, ms or us");
  require_measured(arms.baseline, spec.arms[0]);
  require_measured(arms.candidate, spec.arms[1]);
  if (!arms.baseline_again.empty()) require_measured(arms.baseline_again, spec.arms[0] + ".aa");
  if (!arms.candidate_again.empty()) require_measured(arms.candidate_again, spec.arms[1] + ".aa");
  return arms;
}

/// Processes that have both series; one that lacks an arm is no pair.
std::vector<ArmTimes> pair_up(const std::vector<Series>& baseline,
                              const std::vector<Series>& candidate) {
  std::vector<ArmTimes> pairs;
  for (const Series& b : baseline)
    for (const Series& c : candidate)
      if (b.process == c.process)
        pairs.push_back({b.process, b.values, c.values, b.rounds, c.rounds});
  return pairs;
}

std::vector<double> logs(const std::vector<PairedRatio>& ratios) {
  std::vector<double> values;
  for (const PairedRatio& r : ratios) values.push_back(r.log_ratio);
  return values;
}

/// The same series in cycles (time x clock); empty when a sample lacks its clock.
std::vector<Series> in_cycles(const std::vector<Series>& series) {
  std::vector<Series> cycles;
  for (Series s : series) {
    if (s.clocks_mhz.empty()) return {};
    for (size_t i = 0; i < s.values.size(); ++i) s.values[i] *= s.clocks_mhz[i];
    cycles.push_back(std::move(s));
  }
  return cycles;
}

double median_clock(const std::vector<Series>& series) {
  std::vector<double> clocks;
  for (const Series& s : series)
    clocks.insert(clocks.end(), s.clocks_mhz.begin(), s.clocks_mhz.end());
  return median(clocks);
}

double percent(double log_ratio) { return 100 * std::expm1(log_ratio); }

std::optional<Interval> hull(const std::optional<Interval>& a, const std::optional<Interval>& b) {
  if (!a || !b) return std::nullopt;
  return Interval{std::min(a->lo, b->lo), std::max(a->hi, b->hi), std::min(a->level, b->level)};
}

/// Where the arms ran at different clocks, time alone does not decide: the interval becomes the
/// hull of those in time and in cycles, so that a difference which is the clock's is INCONCLUSIVE.
void apply_clocks(const MetricSpec& spec, const Arms& arms, double margin, double floor,
                  double level, AbResult& result, Metric& metric) {
  const std::vector<Series> baseline = in_cycles(arms.baseline);
  const std::vector<Series> candidate = in_cycles(arms.candidate);
  if (baseline.empty() || candidate.empty()) return;
  const auto ratios = paired_log_ratios(pair_up(baseline, candidate));
  const AbResult cycles = compare_arms(logs(ratios), margin, floor, level);
  const double clock_a = median_clock(arms.baseline), clock_b = median_clock(arms.candidate);
  metric.details["clocks"] = {{"baseline_mhz", clock_a},
                              {"candidate_mhz", clock_b},
                              {"speedup_in_cycles", std::exp(-cycles.log_ratio)},
                              {"verdict_in_cycles", ab_verdict_name(cycles.verdict)}};
  if (std::abs(std::log(clock_b / clock_a)) <= kClockTolerance) return;
  metric.details["throttled"] = clock_b < clock_a ? spec.arms[1] : spec.arms[0];
  result.verdict_interval = hull(result.verdict_interval, cycles.verdict_interval);
  result.shown_interval = hull(result.shown_interval, cycles.shown_interval);
  result.verdict = ab_verdict(result.verdict_interval, result.margin, result.indifference);
}

/// The A/A of one of the pair's arms; none where that arm was measured once a round.
std::optional<nlohmann::json> noise_of(const std::string& name, const std::vector<Series>& arm,
                                       const std::vector<Series>& again, double& floor) {
  const auto ratios = paired_log_ratios(pair_up(arm, again));
  if (ratios.empty()) return std::nullopt;
  const NoiseFloor noise = noise_floor(logs(ratios));
  floor = std::max(floor, noise.floor);
  return nlohmann::json{
      {"arm", name},
      {"floor_pct", percent(noise.floor)},
      {"sd_pct", 100 * noise.sd},
      {"mde_pct", noise.mde ? nlohmann::json(percent(*noise.mde)) : nlohmann::json()},
      {"n", ratios.size()}};
}

/// What identical arms show: the A/A of this pair's own arms, the larger one where both have one.
/// None: the pair was measured without, and no difference can be distinguished from noise.
std::optional<double> apply_noise_floor(const MetricSpec& spec, const Arms& arms, Metric& metric) {
  metric.details["noise_floor"] = nullptr;
  double floor = 0;
  for (const auto& noise : {noise_of(spec.arms[0], arms.baseline, arms.baseline_again, floor),
                            noise_of(spec.arms[1], arms.candidate, arms.candidate_again, floor)}) {
    auto& shown = metric.details["noise_floor"];
    if (noise && (shown.is_null() || shown["floor_pct"] < (*noise)["floor_pct"])) shown = *noise;
  }
  if (metric.details["noise_floor"].is_null()) return std::nullopt;
  return floor;
}

void describe_pairs(const MetricSpec& spec, const std::vector<PairedRatio>& ratios,
                    Metric& metric) {
  auto& rows = metric.details["processes"] = nlohmann::json::array();
  std::vector<double> baseline, candidate;
  for (const PairedRatio& r : ratios) {
    rows.push_back({{"process", r.process},
                    {"baseline", r.baseline_median},
                    {"candidate", r.candidate_median},
                    {"speedup", std::exp(-r.log_ratio)}});
    baseline.push_back(r.baseline_median);
    candidate.push_back(r.candidate_median);
  }
  metric.details["baseline"] = {{"arm", spec.arms[0]}, {"median", median(baseline)}};
  metric.details["candidate"] = {{"arm", spec.arms[1]}, {"median", median(candidate)}};
}

/// Rounds behind the ratio of the process that has fewest; 0 when one is not judged by rounds.
size_t least_rounds(const std::vector<PairedRatio>& ratios) {
  return std::ranges::min_element(ratios, {}, &PairedRatio::rounds)->rounds;
}

/// A series over all processes.
Series joined(const std::vector<Series>& parts) {
  Series all;
  for (const Series& part : parts) {
    all.values.insert(all.values.end(), part.values.begin(), part.values.end());
    all.clocks_mhz.insert(all.clocks_mhz.end(), part.clocks_mhz.begin(), part.clocks_mhz.end());
    all.throttles.insert(all.throttles.end(), part.throttles.begin(), part.throttles.end());
    all.ran_pct.insert(all.ran_pct.end(), part.ran_pct.begin(), part.ran_pct.end());
  }
  return all;
}

nlohmann::json median_or_null(const std::vector<double>& values, size_t wanted) {
  return values.size() == wanted ? nlohmann::json(median(values)) : nlohmann::json();
}

/// Cycles in a unit of time at 1 MHz.
double cycles_each(const std::string& unit) {
  if (unit == "s") return 1e6;
  return unit == "ms" ? 1e3 : 1;
}

/// How the samples of one arm were taken; null where a sample does not record it.
nlohmann::json sample_row(const std::string& arm, const std::vector<Series>& parts) {
  const Series all = joined(parts);
  const size_t n = all.values.size();
  nlohmann::json row = {{"arm", arm},
                        {"n", n},
                        {"median", median(all.values)},
                        {"clock_mhz", median_or_null(all.clocks_mhz, n)},
                        {"ran_pct", median_or_null(all.ran_pct, n)}};
  row["clock_lo_mhz"] = row["clock_hi_mhz"] = row["cycles"] = row["throttled"] = nullptr;
  if (all.clocks_mhz.size() == n) {
    const auto [lo, hi] = std::ranges::minmax(all.clocks_mhz);
    std::vector<double> cycles = all.values;
    for (size_t i = 0; i < n; ++i) cycles[i] *= all.clocks_mhz[i];
    row["clock_lo_mhz"] = lo;
    row["clock_hi_mhz"] = hi;
    row["cycles"] = median(cycles) * cycles_each(parts.front().unit);
  }
  if (all.throttles.size() != n) return row;
  std::set<std::string> reasons;
  for (const std::string& seen : all.throttles)
    if (seen != "none") reasons.insert(seen);
  row["throttled"] = n - static_cast<size_t>(std::ranges::count(all.throttles, "none"));
  row["throttle_reasons"] = reasons;
  return row;
}

/// The table of samples, where they record more than their value.
void describe_samples(const MetricSpec& spec, const Arms& arms, Metric& metric) {
  const Series first = joined(arms.baseline);
  if (first.throttles.empty() && first.ran_pct.empty()) return;
  auto& rows = metric.details["samples"] = nlohmann::json::array();
  rows.push_back(sample_row(spec.arms[0], arms.baseline));
  if (!arms.baseline_again.empty())
    rows.push_back(sample_row(spec.arms[0] + " again (A/A)", arms.baseline_again));
  rows.push_back(sample_row(spec.arms[1], arms.candidate));
  if (!arms.candidate_again.empty())
    rows.push_back(sample_row(spec.arms[1] + " again (A/A)", arms.candidate_again));
  metric.details["cache"] = spec.source.ends_with(".cold") ? "cold" : "hot";
}

void set_speedup(const AbResult& result, Metric& metric) {
  metric.value = std::exp(-result.log_ratio);
  metric.level = kVerdictLevel;
  if (const auto& i = result.verdict_interval) {
    metric.lo = std::exp(-i->hi);
    metric.hi = std::exp(-i->lo);
    metric.details["attained_level"] = i->level;
  }
  if (const auto& i = result.shown_interval) {
    metric.lo95 = std::exp(-i->hi);
    metric.hi95 = std::exp(-i->lo);
  }
  metric.verdict = ab_verdict_name(result.verdict);
}

}  // namespace

void estimate_paired_ratio(const MetricSpec& spec, const EvidenceView& view, Metric& metric) {
  metric.method = "paired_ratio";
  const Arms arms = select_arms(spec, view);
  const std::vector<PairedRatio> ratios = paired_log_ratios(pair_up(arms.baseline, arms.candidate));
  if (ratios.empty()) throw NoData("no process has both arms");
  const std::vector<double> log_ratios = logs(ratios);
  const double margin = view.device == "cuda" ? kGpuMargin : kCpuMargin;
  const std::optional<double> own_floor = apply_noise_floor(spec, arms, metric);
  const double floor = own_floor.value_or(0);
  const double level = level_each(view.looks);
  AbResult result = compare_arms(log_ratios, margin, floor, level);
  apply_clocks(spec, arms, margin, floor, level, result, metric);
  if (!own_floor) result.verdict = AbVerdict::kInconclusive;

  metric.n = static_cast<int64_t>(ratios.size());
  set_speedup(result, metric);
  describe_pairs(spec, ratios, metric);
  if (view.looks > 1) metric.details["looks"] = {{"planned", view.looks}, {"level_of_each", level}};
  metric.details["time_unit"] = arms.baseline.front().unit;
  metric.details["margin_pct"] = 100 * margin;
  metric.details["margin_in_force_pct"] = percent(result.margin);
  if (const size_t rounds = least_rounds(ratios); rounds > 0) metric.details["rounds"] = rounds;
  describe_samples(spec, arms, metric);
  if (ratios.size() >= 2 && ratios.size() <= kBootstrapProcesses) {
    const Interval boot = bca_interval(log_ratios, hodges_lehmann, kShownLevel, view.seed);
    metric.details["bootstrap95"] = {std::exp(-boot.hi), std::exp(-boot.lo)};
  }
  for (const Series& s : arms.baseline) metric.samples.push_back(s.file);
}

void estimate_paired_overhead(const MetricSpec& spec, const EvidenceView& view, Metric& metric) {
  estimate_paired_ratio(spec, view, metric);
  metric.method = "paired_overhead";
  metric.verdict.clear();  // it is that of the ratio, where a kind declares one
  const auto overhead = [](const std::optional<double>& speedup) {
    return speedup ? std::optional<double>(100 * (1 / *speedup - 1)) : std::nullopt;
  };
  metric.value = overhead(metric.value);
  // The larger speed-up is the smaller overhead.
  std::tie(metric.lo, metric.hi) = std::pair(overhead(metric.hi), overhead(metric.lo));
  std::tie(metric.lo95, metric.hi95) = std::pair(overhead(metric.hi95), overhead(metric.lo95));
}

}  // namespace harness::stats

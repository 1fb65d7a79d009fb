#include "harness/evidence/derive/slow_rank.h"

#include <algorithm>
#include <map>

#include "harness/results/number.h"
#include "harness/stats/order_statistics.h"

namespace harness {
namespace {

constexpr double kLonger = 1.25;
constexpr int64_t kFewestSteps = 20;

using StepTimes = std::map<int64_t, double>;  ///< step -> ms

StepTimes own_times(const RawGroup& group) {
  StepTimes times;
  for (const base::protocol::Beat& beat : group.steps) {
    const auto load = beat.extra.find("load_ms"), forward = beat.extra.find("forward_ms");
    if (load == beat.extra.end() || forward == beat.extra.end()) continue;
    if (load->is_number() && forward->is_number())
      times[beat.step] = load->get<double>() + forward->get<double>();
  }
  return times;
}

/// Times of every rank of one group, by rank: g01 -> g01.r0 -> times.
std::map<std::string, std::map<std::string, StepTimes>> by_group(
    const std::vector<RawGroup>& groups) {
  std::map<std::string, std::map<std::string, StepTimes>> result;
  for (const RawGroup& group : groups)
    if (const size_t dot = group.id.find(".r"); dot != std::string::npos)
      result[group.id.substr(0, dot)][group.id] = own_times(group);
  return result;
}

/// Times in the steps that all ranks reported: a row a rank, all of one length.
std::vector<std::vector<double>> common_steps(const std::map<std::string, StepTimes>& ranks) {
  std::vector<std::vector<double>> rows(ranks.size());
  for (const auto& [step, ignored] : ranks.begin()->second) {
    const bool complete = std::ranges::all_of(
        ranks, [step = step](const auto& rank) { return rank.second.contains(step); });
    if (!complete) continue;
    size_t row = 0;
    for (const auto& [id, times] : ranks) rows[row++].push_back(times.at(step));
  }
  return rows;
}

/// The slowest of the ranks but `rank` in step `i`.
double slowest_other(const std::vector<std::vector<double>>& rows, size_t rank, size_t i) {
  double most = 0;
  for (size_t other = 0; other < rows.size(); ++other)
    if (other != rank) most = std::max(most, rows[other][i]);
  return most;
}

}  // namespace

std::string SlowRank::text() const {
  return rank + " takes " + format_value(own_ms, "ms") + " for load and forward pass, the others " +
         format_value(next_ms, "ms") + " at most, which then wait for it; a quarter longer in " +
         std::to_string(slower) + " of " + std::to_string(steps) + " steps";
}

std::optional<SlowRank> slow_rank(const std::vector<RawGroup>& groups) {
  for (const auto& [stem, ranks] : by_group(groups)) {
    const auto rows = common_steps(ranks);
    const auto steps = static_cast<int64_t>(rows.front().size());
    if (rows.size() < 2 || steps < kFewestSteps) continue;
    size_t row = 0;
    for (const auto& [id, ignored] : ranks) {
      std::vector<double> others;
      int64_t slower = 0;
      for (size_t i = 0; i < rows[row].size(); ++i) {
        others.push_back(slowest_other(rows, row, i));
        slower += rows[row][i] > kLonger * others.back();
      }
      if (10 * slower >= 9 * steps)
        return SlowRank{id, stats::median(rows[row]), stats::median(others), slower, steps};
      ++row;
    }
  }
  return std::nullopt;
}

}  // namespace harness

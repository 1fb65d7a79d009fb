#include "harness/process/progress_clock.h"

#include <algorithm>
#include <vector>

namespace harness {
namespace {

constexpr size_t kWindow =
    101;  // gaps remembered: enough for a median, and it follows a change of pace
constexpr size_t kKnown = 3;

void remember(std::deque<double>& window, double value) {
  window.push_back(value);
  if (window.size() > kWindow) window.pop_front();
}

double median(const std::deque<double>& window) {
  std::vector<double> sorted(window.begin(), window.end());
  std::sort(sorted.begin(), sorted.end());
  const auto middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

}  // namespace

void ProgressClock::beat(double now, const base::protocol::Beat& beat) {
  progress(now);
  if (beat.case_id != case_id_) {  // another case has another first step and another pace
    case_id_ = beat.case_id;
    marks_.clear();
    gaps_.clear();
    step_seconds_.clear();
    rates_.clear();
    if (slow_) slow_before_ = slow_;
    slow_.reset();
  }
  const auto [mark, first] = marks_.try_emplace(beat.at, Mark{now, beat.step});
  if (!first) {
    const double gap = now - mark->second.when;
    const auto steps = beat.step - mark->second.step;
    remember(gaps_, gap);
    if (steps > 0) remember(step_seconds_, gap / static_cast<double>(steps));
    mark->second = {now, beat.step};
  }
  steps_left_ = std::max<int64_t>(0, beat.of - beat.step);
  judge_rate(beat);
}

void ProgressClock::judge_rate(const base::protocol::Beat& beat) {
  std::string unit = beat.rate_unit;
  if (beat.rate) {
    remember(rates_, *beat.rate);
  } else if (!step_seconds_.empty() && step_seconds_.back() > 0 && beat.reason.empty()) {
    remember(rates_, 1 / step_seconds_.back());
    unit = "steps/s";
  }
  if (!(policy_.rate_floor > 0) || rates_.size() < kKnown) return;
  const double rate = median(rates_);
  slow_.reset();  // a slow start is forgiven once the median recovers
  if (!(rate >= policy_.rate_floor)) slow_ = SlowRecord{rate, policy_.rate_floor, unit, eta_s()};
}

std::optional<double> ProgressClock::median_gap_s() const {
  if (gaps_.size() < kKnown) return {};
  return median(gaps_);
}

double ProgressClock::allowance_s() const {
  const auto gap = median_gap_s();
  if (!gap) return policy_.first_step_s;
  return std::max(policy_.stall_floor_s, policy_.stall_factor * *gap);
}

double ProgressClock::eta_s() const {
  return step_seconds_.empty() ? 0 : static_cast<double>(steps_left_) * median(step_seconds_);
}

}  // namespace harness

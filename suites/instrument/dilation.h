#pragma once
#include <cstdint>
#include <functional>
#include <vector>

namespace suites {

/// How much longer something takes while it is recorded, percent.
struct Dilation {
  double pct = 0;                 ///< median over pairs of on / off - 1
  double lo_pct = 0, hi_pct = 0;  ///< interval of the median from order statistics
  double level = 0;               ///< its confidence, at least 0.95
};

/// A pair: times of the same work without and with recording, back to back.
struct OffOnPair {
  double off_ms = 0, on_ms = 0;
};

/// Of an even number of values the mean of the two in the middle. Throws c10::Error for none.
double median(std::vector<double> values);

/// A step that can be timed with something switched on and off.
struct SwitchedStep {
  std::function<double(const char* what)> run_ms;  ///< takes one; what: "off" or "on"
  std::function<void()> on, off;
};

/// Pairs of arms, the order swapped every other time. An arm stands for the median of `arm_steps`
/// steps behind one that pays for the switch and is not counted.
std::vector<OffOnPair> time_off_on(const SwitchedStep& step, int64_t pairs, int64_t arm_steps);

/// The narrowest symmetric interval of order statistics with a confidence of at least 95 %. Throws
/// c10::Error for fewer than 6 pairs, which cannot give one, and for a time that is not positive.
Dilation measure_dilation(const std::vector<OffOnPair>& pairs);

}  // namespace suites

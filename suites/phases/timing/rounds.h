#pragma once
#include <functional>
#include <string>
#include <vector>

#include "suites/phases/phase.h"

namespace suites {

/// A sample shorter than this sees the timer more than the work.
inline constexpr double kMinSampleMs = 4;

/// One series of an A/B.
struct TimedSeries {
  std::string name;
  std::function<void()> work;
  int64_t calls = 1;                          ///< calls a sample; its value is the time of one
  bool cold = false;                          ///< the cache is emptied before each call
  std::function<void()> before = {};          ///< before a sample, not timed
  std::function<double(double)> joined = {};  ///< what counts of a time in ms, e.g. over ranks
};

/// The same series once more with a cold cache, "ARM.cold" and "ARM.cold.aa" for its repeat: at
/// most `calls` calls each. Empty on a CPU, where no call can be made to find its cache cold.
std::vector<TimedSeries> cold_series(const PhaseCase& one, const std::vector<TimedSeries>& series,
                                     int64_t calls);

/// Palindromic rounds: every series in the order given, then backwards; which of the two comes
/// first is drawn from the seed. Reports one sample each, with the clock of the device and what
/// holds it down (on a CPU the share of the time in which this thread ran), and a beat a round.
/// `step` counts on over several calls, `of` is their sum.
void time_rounds(const PhaseCase& one, const std::vector<TimedSeries>& series, int64_t rounds,
                 int64_t& step, int64_t of);

}  // namespace suites

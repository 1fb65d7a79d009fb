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
  int64_t calls = 1;  ///< calls a sample; its value is the time of one
};

/// Palindromic rounds: every series in the order given, then backwards; which of the two comes
/// first is drawn from the seed. Says one sample each, with the clock of the device, and a beat a
/// round. `step` counts on over several calls, `of` is their sum.
void time_rounds(const PhaseCase& one, const std::vector<TimedSeries>& series, int64_t rounds,
                 int64_t& step, int64_t of);

}  // namespace suites

#pragma once
#include <optional>
#include <string>

#include "harness/trace/analysis/intervals.h"

namespace harness::trace {

/// Rates that were measured on this machine, not those of its data sheet.
struct Ceilings {
  double tflop_s = 0;  ///< matrix products of the type in use
  double gb_s = 0;     ///< copies in device memory, bytes read and written
  /// Of the cache before the device's memory. What fits may come from there, faster than gb_s.
  double cache_bytes = 0;
};

/// Operations and bytes that a range's work needs at least, by its formula.
struct AnalyticalWork {
  double flops = 0, bytes = 0;
};

struct RooflineRow {
  double tflop_s = 0, gb_s = 0;  ///< attained
  double pct = 0;                ///< of the roof: the best time over the time taken
  bool memory_bound = false;     ///< which ceiling is the roof
};

/// The attained rates of `work` in `busy`, and the percentage of what the ceilings allow: the best
/// time is the longer of flops / tflop_s and bytes / gb_s. Nothing where time, work or a ceiling is
/// not positive.
std::optional<RooflineRow> roofline(AnalyticalWork work, Ns busy, Ceilings ceilings);

}  // namespace harness::trace

#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/results/results.h"

/// How far a measured rate is from what was expected or once seen.
namespace harness {

/// A rate that something should reach, or reached: from `lo` to `hi` tok/s, equal when it is one
/// figure.
struct RateReference {
  std::string name;
  double lo = 0, hi = 0;
  std::string source;
};

/// Reads args.references: a list of {name, lo, hi, source}, rates positive, lo <= hi. Throws Error
/// naming what is wrong.
std::vector<RateReference> read_references(const nlohmann::json& list);

/// The reference over the measured rate: above 1, the measurement is slower.
struct RateGap {
  double ratio = 1;       ///< middle of the reference over the rate
  double lo = 0, hi = 0;  ///< from the bounds of both; 0 and infinity without an interval
  /// slower, faster: also by the bounds; within: the bounds of both meet.
  enum class Reading { kSlower, kWithin, kFaster } reading = Reading::kWithin;
};

/// Pure. `rate` must have a positive value.
RateGap rate_gap(const RateReference& reference, const Metric& rate);

}  // namespace harness

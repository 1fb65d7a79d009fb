#include "harness/training_comparison/scaling.h"

#include "harness/schema/error.h"

namespace harness {
namespace {

double rate_of(const Metric& metric) {
  if (metric.value && *metric.value > 0) return *metric.value;
  throw Error("a rate of training must be > 0 tok/s to be compared");
}

}  // namespace

ScalingEfficiency scaling_efficiency(const Metric& one, const Metric& several, int64_t ranks) {
  if (ranks < 1) throw Error("ranks must be >= 1, got " + std::to_string(ranks));
  const double linear = 100.0 / static_cast<double>(ranks);
  ScalingEfficiency result;
  result.pct = linear * rate_of(several) / rate_of(one);
  if (!(one.lo && one.hi && several.lo && several.hi && *one.lo > 0)) return result;
  result.lo_pct = linear * *several.lo / *one.hi;
  result.hi_pct = linear * *several.hi / *one.lo;
  return result;
}

}  // namespace harness

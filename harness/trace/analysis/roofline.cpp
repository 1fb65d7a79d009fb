#include "harness/trace/analysis/roofline.h"

#include <algorithm>

namespace harness::trace {

std::optional<RooflineRow> roofline(AnalyticalWork work, Ns busy, Ceilings ceilings) {
  const bool known = work.flops >= 0 && work.bytes >= 0 && work.flops + work.bytes > 0;
  if (!known || busy <= 0 || !(ceilings.tflop_s > 0) || !(ceilings.gb_s > 0)) return std::nullopt;
  const auto ns = static_cast<double>(busy);
  const double compute_ns = work.flops / (ceilings.tflop_s * 1e3);
  const double memory_ns = work.bytes / ceilings.gb_s;
  return RooflineRow{.tflop_s = work.flops / ns / 1e3,
                     .gb_s = work.bytes / ns,
                     .pct = 100 * std::max(compute_ns, memory_ns) / ns,
                     .memory_bound = memory_ns > compute_ns};
}

}  // namespace harness::trace

#pragma once
#include <map>

#include "harness/trace/analysis/profile.h"
#include "harness/trace/analysis/roofline.h"
#include "nsa/diagnostics/run_record.h"
#include "suites/phases/phase.h"

/// The lines that a profile writes to the result channel.
namespace suites {

/// Reports metric NAME; `reason` instead of a value that is not there.
void emit_figure(const PhaseCase& one, const std::string& name, double value,
                 const std::string& unit);
void emit_missing(const PhaseCase& one, const std::string& name, const std::string& unit,
                  const std::string& reason);

/// Metric of a range: GROUP.RANGE_pct with '_' for '.' and '+' in the range.
std::string range_metric(const std::string& group, const std::string& range);

/// What the work of a step could reach at best.
struct Roof {
  std::map<std::string, harness::trace::AnalyticalWork> work = {};  ///< of one step, by range
  harness::trace::Ceilings ceilings = {};
};

/// Counts, times and shares as metrics, per step where their name has `per_step`; the tables
/// `ranges`, `kernels` (both with the percentage of the roof where there is a formula), `copies`
/// and `idle`; checks "records/launches" and "shares/sum". `ran` is the record of what ran: if the
/// selection kernel writes the ranges, the share of the range nsa.ranges is 0; else it has none
/// unless it was entered.
void emit_profile(const PhaseCase& one, const harness::trace::Profile& profile,
                  double shares_tolerance_pct, const Roof& roof = {},
                  const std::vector<nsa::RanBackend>& ran = {});

/// Metrics roofline.RANGE_pct and the table `roofline`: what the ranges with known work attained,
/// in percent of what the ceilings allow. More than 100 % is a finding ROOFLINE_EXCEEDED,
/// unless the cache may have saved the difference.
void emit_roofline(const PhaseCase& one, const harness::trace::Profile& profile, const Roof& roof);

}  // namespace suites

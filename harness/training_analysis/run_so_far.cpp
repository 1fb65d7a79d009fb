#include "harness/training_analysis/run_so_far.h"

#include <algorithm>
#include <cmath>

#include "harness/evidence/derive/derive.h"
#include "harness/results/number.h"

namespace harness {
namespace {

template <class List, class Member>
auto find_by(const List& list, Member member, const std::string& value) -> decltype(list.data()) {
  const auto found = std::ranges::find(list, value, member);
  return found == list.end() ? nullptr : &*found;
}

bool counts(const Metric& metric) {
  return metric.value && std::isfinite(*metric.value) && metric.withheld.empty();
}

}  // namespace

const PlannedPhase* RunSoFar::phase(const std::string& id) const {
  return find_by(files.plan.phases, &PlannedPhase::id, id);
}

const CriterionResult* RunSoFar::criterion(const std::string& id) const {
  return find_by(results.criteria, &CriterionResult::id, id);
}

const Metric* RunSoFar::figure(const std::string& phase, const std::string& name) const {
  const Metric* metric = find_by(results.metrics, &Metric::name, phase + "." + name);
  return metric != nullptr && counts(*metric) ? metric : nullptr;
}

std::string RunSoFar::why_no_figure(const std::string& phase, const std::string& name) const {
  const Metric* metric = find_by(results.metrics, &Metric::name, phase + "." + name);
  if (metric == nullptr) return "no phase of this run measures " + phase + "." + name;
  return metric->name + " has no value: " +
         (metric->withheld.empty() ? metric->null_reason : "withheld, " + metric->withheld);
}

RunSoFar run_so_far(const std::filesystem::path& run_dir) {
  const RunFolder run(run_dir);
  return {read_run_files(run), derive_all(run).results};
}

std::string measured_text(const Metric& metric) {
  const std::string value = format_value(metric.value.value_or(std::nan("")), metric.unit);
  return metric.lo && metric.hi ? value + " " + format_interval(*metric.lo, *metric.hi)
                                : value + " (no interval)";
}

}  // namespace harness

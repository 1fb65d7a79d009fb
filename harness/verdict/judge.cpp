#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "harness/results/number.h"
#include "harness/verdict/verdict.h"

/// One criterion against one figure. Every comparison is in positive form: NaN passes nothing.
namespace harness {
namespace {

/// Raised inside judge() where the criterion cannot be evaluated; becomes the reason.
struct NotEvaluated : std::runtime_error {
  using std::runtime_error::runtime_error;
};

bool holds(double a, const std::string& op, double b) {
  if (op == ">=") return a >= b;
  if (op == ">") return a > b;
  if (op == "<=") return a <= b;
  if (op == "<") return a < b;
  if (op == "==") return a == b;
  return false;
}

/// Whether `a op b` is known to be false; not the same as !holds() where NaN is about.
bool fails(double a, const std::string& op, double b) {
  return !std::isnan(a) && !std::isnan(b) && !holds(a, op, b);
}

double baseline_threshold(const CriterionSpec& spec, const Baselines& baselines,
                          std::string& source) {
  const auto name = spec.value.value("baseline", std::string());
  const auto factor = spec.value.value("factor", 1.0);
  if (!baselines.problem.empty()) throw NotEvaluated{baselines.problem};
  const auto entry = baselines.values.find(name);
  if (entry == baselines.values.end())
    throw NotEvaluated{"BASELINE_INVALID: no baseline of '" + name + "'" +
                       (baselines.file.empty() ? "" : " in " + baselines.file)};
  if (!(std::isfinite(entry->second) && entry->second > 0))
    throw NotEvaluated{"BASELINE_INVALID: the baseline of '" + name + "' is " +
                       format_number(entry->second) + "; it must be positive"};
  if (const auto unit = baselines.units.find(name);
      unit != baselines.units.end() && unit->second != spec.unit)
    throw NotEvaluated{"BASELINE_INVALID: the baseline of '" + name + "' is in '" + unit->second +
                       "', the criterion in '" + spec.unit + "'"};
  source = "baseline " + baselines.file + ": " + name + " x " + format_number(factor);
  return entry->second * factor;
}

double resolve_threshold(const CriterionSpec& spec, const Baselines& baselines,
                         std::string& source) {
  source = spec.source.empty() ? "runbook" : spec.source;
  double threshold = 0;
  if (spec.value.is_boolean()) {
    threshold = spec.value.get<bool>() ? 1 : 0;
  } else if (spec.value.is_number()) {
    threshold = spec.value.get<double>();
  } else if (spec.value.is_object()) {
    threshold = baseline_threshold(spec, baselines, source);
  } else {
    throw NotEvaluated{"the threshold must be a number, a bool or {baseline, factor}, got " +
                       spec.value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
  }
  if (!std::isfinite(threshold)) throw NotEvaluated{"the threshold is not finite"};
  return threshold;
}

/// The figure a criterion may be judged by.
double usable_value(const CriterionSpec& spec, const Metric* metric) {
  static const auto ops = {">=", ">", "<=", "<", "=="};
  if (std::ranges::find(ops, spec.op) == ops.end())
    throw NotEvaluated{"the operator must be one of >= > <= < ==, got '" + spec.op + "'"};
  if (metric == nullptr) throw NotEvaluated{"no phase produced the metric " + spec.metric};
  if (!metric->withheld.empty()) throw NotEvaluated{"withheld: " + metric->withheld};
  if (!metric->value)
    throw NotEvaluated{metric->null_reason.empty() ? "the metric is null" : metric->null_reason};
  if (!std::isfinite(*metric->value)) throw NotEvaluated{"the metric is not finite"};
  if (metric->unit != spec.unit)
    throw NotEvaluated{"the metric is in '" + metric->unit + "', the criterion in '" + spec.unit +
                       "'"};
  return *metric->value;
}

double signed_margin(double observed, const std::string& op, double threshold) {
  if (op == ">=" || op == ">") return observed - threshold;
  if (op == "<=" || op == "<") return threshold - observed;
  return observed == threshold ? 0 : -std::abs(observed - threshold);
}

/// "WHAT 1.4 RELATION >= 1.5"
std::string sentence(const std::string& what, double observed, const std::string& relation,
                     const CriterionSpec& spec, double threshold) {
  const auto [left, right] = format_apart(observed, threshold, spec.unit);
  return what + " " + left + relation + spec.op + " " + right;
}

void judge_exact(const CriterionSpec& spec, double value, double threshold,
                 CriterionResult& result) {
  result.observed = value;
  const bool pass = holds(value, spec.op, threshold);
  result.verdict = pass ? CriterionVerdict::kPass : CriterionVerdict::kFail;
  result.reason = sentence("value", value, pass ? " " : ", must be ", spec, threshold);
}

void judge_measured(const CriterionSpec& spec, const Metric& metric, double threshold,
                    CriterionResult& result) {
  if (spec.op == "==") throw NotEvaluated{"== is for exact figures; this one is measured"};
  if (!metric.lo || !metric.hi) {
    result.verdict = CriterionVerdict::kInconclusive;
    result.reason = "no " + format_number(100 * metric.level) +
                    " % interval at n = " + std::to_string(metric.n) +
                    "; more processes or samples are needed";
    return;
  }
  if (!(std::isfinite(*metric.lo) && std::isfinite(*metric.hi) && *metric.lo <= *metric.hi))
    throw NotEvaluated{"the interval of the metric is not finite or not ordered"};
  const bool wants_more = spec.op == ">=" || spec.op == ">";
  const double bound = wants_more ? *metric.lo : *metric.hi;
  const double other = wants_more ? *metric.hi : *metric.lo;
  result.observed = bound;
  const std::string near = wants_more ? "lower bound" : "upper bound";
  const std::string far = wants_more ? "upper bound" : "lower bound";
  if (holds(bound, spec.op, threshold)) {
    result.verdict = CriterionVerdict::kPass;
    result.reason = sentence(near, bound, " ", spec, threshold);
  } else if (fails(other, spec.op, threshold)) {
    result.verdict = CriterionVerdict::kFail;
    result.reason = sentence("even the " + far, other, " misses ", spec, threshold);
  } else {
    result.verdict = CriterionVerdict::kInconclusive;
    result.reason =
        sentence("the interval holds the threshold: " + near, bound, ", must be ", spec, threshold);
  }
}

/// A bound cannot be compared with a figure whose bounds are at another level.
void require_level(const CriterionSpec& spec, const Metric& metric, const Baselines& baselines) {
  if (!spec.value.is_object()) return;
  const auto level = baselines.levels.find(spec.value.value("baseline", std::string()));
  if (level != baselines.levels.end() && level->second != metric.level)
    throw NotEvaluated{"BASELINE_INVALID: the baseline's interval is of level " +
                       format_number(level->second) + ", this figure's of " +
                       format_number(metric.level)};
}

}  // namespace

CriterionResult judge(const CriterionSpec& spec, std::string_view phase, const Metric* metric,
                      const Baselines& baselines) {
  CriterionResult result;
  result.id = spec.id;
  result.phase = phase;
  result.text = spec.text;
  result.metric = spec.metric;
  result.op = spec.op;
  result.unit = spec.unit;
  result.severity = spec.severity;
  result.evidence = spec.evidence;
  try {
    const double threshold = resolve_threshold(spec, baselines, result.threshold_source);
    result.threshold = threshold;
    const double value = usable_value(spec, metric);
    require_level(spec, *metric, baselines);
    if (metric->method == "exact")
      judge_exact(spec, value, threshold, result);
    else
      judge_measured(spec, *metric, threshold, result);
    if (result.observed) result.margin = signed_margin(*result.observed, spec.op, threshold);
  } catch (const NotEvaluated& why) {
    result.verdict = CriterionVerdict::kNotEvaluated;
    result.reason = why.what();
  }
  return result;
}

CriterionResult judge(const CriterionSpec& spec, std::string_view phase,
                      std::span<const Metric> metrics, const Baselines& baselines) {
  const auto found = std::ranges::find(metrics, spec.metric, &Metric::name);
  return judge(spec, phase, found == metrics.end() ? nullptr : &*found, baselines);
}

CriterionResult confirmed(CriterionResult first, const CriterionResult* again) {
  if (first.verdict != CriterionVerdict::kFail) return first;
  if (again == nullptr) {
    first.verdict = CriterionVerdict::kInconclusive;
    first.reason += "; not confirmed: the second measurement is missing";
  } else if (again->verdict == CriterionVerdict::kFail) {
    first.reason += "; confirmed by a second measurement: " + again->reason;
  } else {
    first.verdict = CriterionVerdict::kInconclusive;
    first.reason += "; a second measurement does not confirm it, " +
                    std::string(enum_name(again->verdict)) + ": " + again->reason;
  }
  return first;
}

std::string unmet_criteria(std::span<const std::string> needed,
                           std::span<const CriterionResult> criteria) {
  for (const std::string& id : needed) {
    const auto found = std::ranges::find(criteria, id, &CriterionResult::id);
    if (found == criteria.end()) return "needs " + id + ", which this run does not have";
    if (found->verdict != CriterionVerdict::kPass)
      return "needs " + id + ", which is " + std::string(enum_name(found->verdict)) + ": " +
             found->reason;
  }
  return "";
}

}  // namespace harness

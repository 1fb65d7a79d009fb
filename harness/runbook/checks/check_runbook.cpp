#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "harness/runbook/checks/check.h"
#include "harness/runbook/checks/check_answers.h"
#include "harness/runbook/checks/check_at.h"
#include "harness/runbook/checks/check_phase.h"
#include "harness/runbook/plan/graph.h"
#include "harness/schema/read.h"

namespace harness {
namespace {

using nlohmann::json;

/// Declared metrics by full name.
std::map<std::string, const MetricSpec*> declared_metrics(const Runbook& runbook,
                                                          const Kinds& kinds) {
  std::map<std::string, const MetricSpec*> metrics;
  for (const PhaseSpec& phase : runbook.phases)
    for (const MetricSpec& metric : kinds.at(parse_run(phase.run).kind).metrics)
      if (metric.device.empty() || metric.device == runbook.device_of(phase))
        metrics[phase.id + "." + metric.name] = &metric;
  return metrics;
}

class CriterionChecker {
 public:
  CriterionChecker(const Source& source, const Runbook& runbook, const Kinds& kinds)
      : source_(source), metrics_(declared_metrics(runbook, kinds)) {
    for (const auto& [name, spec] : metrics_) names_.push_back(name);
    for (const PhaseSpec& phase : runbook.phases) processes_[phase.id] = phase.processes;
  }

  void check(const json& document, const CriterionSpec& criterion) {
    what_ = "criterion " + in_quotes(criterion.id) + ": ";
    require(source_, at(document, "id"), is_criterion_id(criterion.id),
            "criterion id " + in_quotes(criterion.id) +
                " must be C- and lower case letters, digits, '.', '_' or '-'");
    require(source_, at(document, "id"), ids_.insert(criterion.id).second,
            what_ + "the id is given twice in this runbook");
    require_one_of(source_, at(document, "op"), what_ + "op", criterion.op, comparison_ops());
    require_one_of(source_, at(document, "evidence"), what_ + "evidence", criterion.evidence,
                   evidence_kinds());
    const MetricSpec& metric = check_metric(at(document, "metric"), criterion.metric,
                                            criterion.unit, at(document, "unit"));
    require(source_, at(document, "op"),
            criterion.op != "==" || is_exact_estimator(metric.estimator),
            what_ + "== is for exact metrics, but '" + criterion.metric + "' is measured (" +
                metric.estimator + "); use >= or <=");
    check_value(document, criterion);
    check_can_fail(document, criterion);
    check_reaches_level(document, criterion, metric);
    check_source(document, criterion);
  }

  void check_history(const json& entry) {
    what_ = "history: ";
    require(source_, entry, entry.is_object(), what_ + "an entry must be an object");
    for (const char* key : {"metric", "value", "unit", "source"})
      require(source_, entry, entry.contains(key), what_ + "an entry lacks the key '" + key + "'");
    require(source_, entry, entry.size() == 4,
            what_ + "an entry has the keys metric, value, unit and source, and no other");
    for (const char* key : {"metric", "unit", "source"})
      require(source_, entry.at(key), entry.at(key).is_string(), what_ + key + " must be a string");
    require(source_, entry.at("value"), entry.at("value").is_number(),
            what_ + "value must be a number");
    check_metric(entry.at("metric"), entry.at("metric").get<std::string>(),
                 entry.at("unit").get<std::string>(), entry.at("unit"));
  }

  const std::vector<std::string>& metric_names() const { return names_; }

 private:
  const MetricSpec& check_metric(const json& place, const std::string& name,
                                 const std::string& unit, const json& unit_place) {
    require_one_of(source_, unit_place, what_ + "unit", unit, metric_units());
    const std::string problem = metric_name_problem(name, unit, /*with_phase=*/true);
    require(source_, place, problem.empty(), what_ + "metric " + in_quotes(name) + " " + problem);
    const auto found = metrics_.find(name);
    if (found == metrics_.end())
      source_.fail(place, what_ + "no phase declares the metric " + in_quotes(name) +
                              did_you_mean(name, names_));
    return *found->second;
  }

  /// Counts, times, rates and sizes are never negative: at least 0 they are anyway.
  void check_can_fail(const json& document, const CriterionSpec& criterion) {
    static const std::vector<std::string> kNeverNegative = {"count", "ms",  "us",   "s",
                                                            "tok_s", "mib", "gb_s", "tflop_s"};
    const json& value = document.at("value");
    if (!value.is_number() || !contains(kNeverNegative, criterion.unit)) return;
    const double threshold = value.get<double>();
    const bool always =
        (criterion.op == ">=" && threshold <= 0) || (criterion.op == ">" && threshold < 0);
    require(source_, value, !always,
            what_ + criterion.op + " " + value.dump() + " holds for every figure in " +
                criterion.unit + "; a criterion must be able to fail");
  }

  /// A threshold on a measured scale needs a source.
  void check_source(const json& document, const CriterionSpec& criterion) {
    static const std::vector<std::string> kSources = {"physical: ", "historical: ", "oracle: "};
    const bool measured = document.at("value").is_number() && criterion.unit != "count";
    if (!measured)
      return require(source_, at(document, "source"), criterion.source.empty(),
                     what_ +
                         "source belongs to numbers on a measured scale; counts are held "
                         "against the plan, baselines name their file");
    const bool named = std::ranges::any_of(kSources, [&](const std::string& prefix) {
      return criterion.source.starts_with(prefix) && criterion.source.size() > prefix.size();
    });
    require(source_, at(document, "source"), named,
            what_ + "source must state where " + criterion.op + " " + document.at("value").dump() +
                " " + criterion.unit +
                " comes from: 'physical: ...', 'historical: ...' or 'oracle: ...', got " +
                in_quotes(criterion.source) +
                "; a number that is only what was measured belongs in a baseline "
                "(configs/baselines)");
  }

  /// Between processes the exact intervals (signed rank, order statistics) know no error below
  /// 2^(1-n): with fewer than 8 there is none of 99 %, and the criterion stays undecided for ever.
  void check_reaches_level(const json& document, const CriterionSpec& criterion,
                           const MetricSpec& metric) {
    constexpr int64_t kLeast = 8;
    const bool paired = metric.estimator.starts_with("paired_");
    const bool between = metric.estimator == "median";
    const std::string phase = criterion.metric.substr(0, criterion.metric.find('.'));
    const int64_t processes = processes_.at(phase);
    const bool enough = processes >= kLeast || (between && processes == 1) || !(paired || between);
    require(source_, at(document, "metric"), enough,
            what_ + "phase '" + phase + "' plans " + std::to_string(processes) +
                (processes == 1 ? " process" : " processes") + ", and '" + criterion.metric +
                "' (" + metric.estimator +
                ") has no 99 % interval with fewer than 8: the criterion could never be decided; "
                "set processes of the phase to 8 or more");
  }

  void check_value(const json& document, const CriterionSpec& criterion) {
    const json& value = document.at("value");
    if (criterion.unit == "bool") {
      require(source_, value, value.is_boolean() && criterion.op == "==",
              what_ + "a bool metric is compared by == with true or false");
    } else if (value.is_object()) {
      const auto reference = Reader(source_).read<BaselineRef>(value);
      const std::string problem =
          metric_name_problem(reference.baseline, criterion.unit, /*with_phase=*/true);
      require(source_, value, problem.empty(),
              what_ + "baseline " + in_quotes(reference.baseline) + " " + problem);
      require(source_, value, std::isfinite(reference.factor) && reference.factor > 0,
              what_ + "factor must be above 0");
    } else {
      require(source_, value, value.is_number(),
              what_ + "value must be a number, a bool (unit bool) or {baseline, factor}");
    }
  }

  const Source& source_;
  std::map<std::string, const MetricSpec*> metrics_;
  std::vector<std::string> names_;
  std::map<std::string, int64_t> processes_;  ///< planned, by phase
  std::set<std::string> ids_;
  std::string what_;
};

void check_head(const Source& source, const json& document, const Runbook& runbook) {
  require(source, at(document, "schema"), runbook.schema == "nsa-runbook/1",
          "schema must be 'nsa-runbook/1', got " + in_quotes(runbook.schema));
  require(source, at(document, "name"), is_plain_name(runbook.name),
          "name " + in_quotes(runbook.name) + " must be lower case letters, digits and _");
  require_one_of(source, at(document, "device"), "device", runbook.device, device_names());
  require(source, document, !runbook.scope.empty(),
          "scope must state what a verdict of this runbook is about");
  require(source, at(document, "seed"), runbook.seed >= 0, "seed must not be negative");
  require(source, at(document, "phases"), !runbook.phases.empty(),
          "phases is empty: a run of nothing decides nothing");
  constexpr size_t kMostPhases = 999;
  require(source, at(document, "phases"), runbook.phases.size() <= kMostPhases,
          "phases must be at most 999, got " + std::to_string(runbook.phases.size()));
  const bool judged = std::any_of(runbook.phases.begin(), runbook.phases.end(),
                                  [](const PhaseSpec& p) { return !p.criteria.empty(); });
  require(source, at(document, "phases"), judged,
          "no phase has criteria: a run without a criterion decides nothing");
}

/// A criterion that a phase needs exists, and is decided before the phase.
void check_needed_criteria(const Source& source, const json& document, const Runbook& runbook,
                           const PhaseSpec& phase) {
  std::vector<std::string> ids;
  for (const PhaseSpec& other : runbook.phases)
    for (const CriterionSpec& criterion : other.criteria) {
      ids.push_back(criterion.id);
      const bool own = other.id == phase.id || criterion.metric.starts_with(phase.id + ".");
      require(source, at(document, "needs_criteria"),
              !own || !contains(phase.needs_criteria, criterion.id),
              "phase '" + phase.id + "' needs its own criterion " + in_quotes(criterion.id) +
                  "; it must be one of an earlier phase");
    }
  for (const std::string& need : phase.needs_criteria)
    require(source, at(document, "needs_criteria"), contains(ids, need),
            "phase '" + phase.id + "' needs the criterion " + in_quotes(need) +
                ", which does not exist" + did_you_mean(need, ids));
}

void check_needs(const Source& source, const json& document, const Runbook& runbook) {
  std::vector<std::string> ids;
  for (const PhaseSpec& phase : runbook.phases) ids.push_back(phase.id);
  for (size_t i = 0; i < runbook.phases.size(); ++i) {
    const PhaseSpec& phase = runbook.phases[i];
    for (const std::string& need : phase.needs)
      require(source, at(document.at("phases")[i], "needs"), contains(ids, need),
              "phase '" + phase.id + "' needs " + in_quotes(need) + ", which does not exist" +
                  did_you_mean(need, ids));
    check_needed_criteria(source, document.at("phases")[i], runbook, phase);
  }
  const PhaseOrder order = order_phases(runbook);
  if (order.cycle.empty()) return;
  std::string text;
  for (const size_t i : order.cycle) text += runbook.phases[i].id + " -> ";
  const size_t first = order.cycle.front();
  source.fail(at(document.at("phases")[first], "needs"),
              "phases need each other in a cycle: " + text + runbook.phases[first].id);
}

double least_gpus(const PhaseSpec& phase) {
  const auto want = phase.require.find("gpu.count");
  if (want == phase.require.end() || !want->second.is_string()) return 0;
  const auto text = want->second.get<std::string>();
  return text.starts_with(">=") ? std::strtod(text.c_str() + 2, nullptr) : 0;
}

/// A phase of larger machines leaves no machine unjudged: one that is asked of every machine needs
/// GPUs too, and fewer. What is outside the scope has criteria in its own phase.
void check_size(const Source& source, const json& document, const Runbook& runbook,
                const PhaseSpec& phase) {
  if (phase.required != Required::kBySize) return;
  const std::string what = "phase '" + phase.id + "': required by_size ";
  require(source, at(document, "required"), least_gpus(phase) > 1,
          what + "needs \"gpu.count\": \">=N\" in require, with N above 1");
  const bool smaller = std::ranges::any_of(runbook.phases, [&](const PhaseSpec& other) {
    const bool asked =
        other.required == Required::kAlways || other.required == Required::kIfHardware;
    return asked && !other.criteria.empty() && least_gpus(other) >= 1 &&
           least_gpus(other) < least_gpus(phase);
  });
  require(source, at(document, "required"), smaller,
          what +
              "needs a phase with criteria that is required always or if_hardware and asks for "
              "fewer GPUs: without one a machine without GPUs would pass");
}

/// A phase stands on the one device that its kind runs on, if it names one.
void check_device(const Source& source, const json& document, const Runbook& runbook,
                  const PhaseSpec& phase, const KindSpec& kind) {
  const std::string& device = runbook.device_of(phase);
  require(source, at(document, "device"), kind.device.empty() || kind.device == device,
          "phase '" + phase.id + "': device must be " + kind.device + ", where alone " + kind.kind +
              " runs, got " + device + "; add \"device\": \"" + kind.device + "\" to the phase");
}

void check_ids(const Source& source, const json& list, const std::string& what) {
  std::set<std::string> seen;
  for (const json& item : list)
    require(source, item.at("id"), seen.insert(item.at("id").get<std::string>()).second,
            what + " " + in_quotes(item.at("id").get<std::string>()) + " is given twice");
}

}  // namespace

void check_unique_ids(const Source& source, const json& document) {
  if (!document.contains("phases")) return;
  check_ids(source, document.at("phases"), "phase");
  for (const json& phase : document.at("phases"))
    if (phase.contains("criteria")) check_ids(source, phase.at("criteria"), "criterion");
}

void check_runbook(const Source& source, const json& document, const Runbook& runbook,
                   const Kinds& kinds) {
  check_head(source, document, runbook);
  for (size_t i = 0; i < runbook.phases.size(); ++i) {
    const PhaseSpec& phase = runbook.phases[i];
    check_phase(source, document.at("phases")[i], phase, kinds);
    check_size(source, document.at("phases")[i], runbook, phase);
    check_device(source, document.at("phases")[i], runbook, phase,
                 kinds.at(parse_run(phase.run).kind));
  }
  check_needs(source, document, runbook);
  CriterionChecker criteria(source, runbook, kinds);
  for (size_t i = 0; i < runbook.phases.size(); ++i)
    for (size_t j = 0; j < runbook.phases[i].criteria.size(); ++j)
      criteria.check(document.at("phases")[i].at("criteria")[j], runbook.phases[i].criteria[j]);
  for (size_t i = 0; i < runbook.history.size(); ++i)
    criteria.check_history(document.at("history")[i]);
  check_answers(source, document, runbook, criteria.metric_names());
}

}  // namespace harness

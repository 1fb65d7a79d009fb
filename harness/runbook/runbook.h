#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/results/answer.h"
#include "harness/results/results.h"

/// A runbook as read from configs/runbooks/NAME.json, and the description of a phase kind from
/// configs/kinds/KIND.json.
namespace harness {

/// A figure that a phase kind produces. `name` lacks the phase: phase "ranges_ab" and name
/// "v2_vs_v1.speedup_ratio" give the metric "ranges_ab.v2_vs_v1.speedup_ratio".
struct MetricSpec {
  std::string name;
  std::string unit;
  std::string estimator;  ///< key of the table in harness/stats/estimators/estimators.h
  std::string
      source;  ///< series (samples), metric line or check prefix the estimator reads; default: name
  std::vector<std::string> arms;  ///< paired estimators: [baseline arm, candidate arm]
  std::string doc;
  std::string device = "";  ///< cpu | cuda: exists only there; empty: on both
  template <class V>
  static void describe(V& v) {
    v({.name = "name", .doc = "subject[.case].quantity_unit, without the phase", .required = true},
      &MetricSpec::name);
    v({.name = "unit",
       .doc = "one of ms us s tok_s mib gb_s tflop_s pct ratio count bool nat",
       .required = true},
      &MetricSpec::unit);
    v({.name = "estimator",
       .doc = "how the figure follows from the raw evidence",
       .required = true},
      &MetricSpec::estimator);
    v({.name = "source",
       .doc = "series, metric line or check prefix that is read; default: the name"},
      &MetricSpec::source);
    v({.name = "arms", .doc = "paired estimators: baseline arm, candidate arm"}, &MetricSpec::arms);
    v({.name = "doc", .doc = "what the figure means"}, &MetricSpec::doc);
    v({.name = "device", .doc = "cpu or cuda when the figure exists only there; empty: on both"},
      &MetricSpec::device);
  }
};

struct ArgSpec {
  std::string name;
  std::string type;      ///< int | number | string | bool | list | object
  nlohmann::json value;  ///< default
  std::string unit, doc;
  template <class V>
  static void describe(V& v) {
    v({.name = "name", .doc = "key in args", .required = true}, &ArgSpec::name);
    v({.name = "type", .doc = "int, number, string, bool, list or object", .required = true},
      &ArgSpec::type);
    v({.name = "default", .doc = "value when the runbook gives none", .required = true},
      &ArgSpec::value);
    v({.name = "unit", .doc = "unit of the number"}, &ArgSpec::unit);
    v({.name = "doc", .doc = "what it does", .required = true}, &ArgSpec::doc);
  }
};

/// A table of a phase in the report. A cell "=NAME" stands for the figure NAME of the kind, any
/// other cell for itself.
struct KindTable {
  std::string id;
  std::string title;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;  ///< each as long as `columns`
  template <class V>
  static void describe(V& v) {
    v({.name = "id", .doc = "unique in the kind; lower case, digits and _", .required = true},
      &KindTable::id);
    v({.name = "title", .doc = "what it shows", .required = true}, &KindTable::title);
    v({.name = "columns", .doc = "headings", .required = true}, &KindTable::columns);
    v({.name = "rows", .doc = "cells; =NAME is the figure NAME of this kind", .required = true},
      &KindTable::rows);
  }
};

/// configs/kinds/KIND.json: what `run: "nsa-worker:KIND"` (or builtin:KIND, nsa-train, ...) takes
/// and produces.
struct KindSpec {
  std::string kind;
  std::string program;  ///< builtin | nsa-worker | nsa-tests | nsa-bench | nsa-train: the part of
                        ///< `run` before the colon
  std::string doc;
  std::string mode = "check";  ///< check | time | profile | trace: what its workers are started in
  double minutes = 1;          ///< expected duration for `plan`
  std::string device = "";     ///< cpu | cuda: runs only there; empty: on both
  std::vector<ArgSpec> args;
  std::map<std::string, std::vector<std::string>> lists;  ///< words that {NAME} stands for
  std::map<std::string, std::string> settings;  ///< what a user sets to have an arm, by its name
  std::vector<MetricSpec> metrics;  ///< a name with {NAME}: one metric a word (metric_families.h)
  std::vector<KindTable> tables;    ///< figures side by side, as the report shows them
  template <class V>
  static void describe(V& v) {
    v({.name = "kind",
       .doc = "name behind the colon of `run`; the program's name for nsa-tests, nsa-bench and "
              "nsa-train",
       .required = true},
      &KindSpec::kind);
    v({.name = "program",
       .doc = "builtin, nsa-worker, nsa-tests, nsa-bench or nsa-train",
       .required = true},
      &KindSpec::program);
    v({.name = "doc", .doc = "what the phase does", .required = true}, &KindSpec::doc);
    v({.name = "mode", .doc = "check, time, profile or trace"}, &KindSpec::mode);
    v({.name = "minutes", .doc = "expected duration"}, &KindSpec::minutes);
    v({.name = "device", .doc = "cpu or cuda when its phases run only there; empty: on both"},
      &KindSpec::device);
    v({.name = "args", .doc = "declared arguments"}, &KindSpec::args);
    v({.name = "lists",
       .doc =
           "words by the name of their list: a metric or a row of a table with {NAME} stands for "
           "one a word"},
      &KindSpec::lists);
    v({.name = "settings",
       .doc = "what a user sets to have an arm, by its name, such as \"v1\": "
              "\"NSA_SEL_RANGES_V2=0\"; where it names any, a report recommends no other arm"},
      &KindSpec::settings);
    v({.name = "metrics", .doc = "figures it produces"}, &KindSpec::metrics);
    v({.name = "tables", .doc = "figures side by side, as the report shows them"},
      &KindSpec::tables);
  }
};

struct BaselineRef {
  std::string baseline;  ///< metric name in configs/baselines/RUNBOOK/HW_KEY.json
  double factor = 1;
  template <class V>
  static void describe(V& v) {
    v({.name = "baseline", .doc = "metric in the baseline file", .required = true},
      &BaselineRef::baseline);
    v({.name = "factor", .doc = "threshold = baseline value x factor", .required = true},
      &BaselineRef::factor);
  }
};

struct CriterionSpec {
  std::string id;        ///< C-...
  std::string text;      ///< the requirement in words
  std::string metric;    ///< full metric name
  std::string op;        ///< >= <= > < ==
  nlohmann::json value;  ///< number, bool, or BaselineRef object
  std::string source;    ///< "physical: ...": where a number on a measured scale comes from
  std::string unit;
  Severity severity = Severity::kBlocker;
  std::string evidence;  ///< tests | samples | record | profile
  template <class V>
  static void describe(V& v) {
    v({.name = "id", .doc = "C- and a name, unique in the runbook", .required = true},
      &CriterionSpec::id);
    v({.name = "text", .doc = "the requirement in words", .required = true}, &CriterionSpec::text);
    v({.name = "metric", .doc = "full metric name", .required = true}, &CriterionSpec::metric);
    v({.name = "op", .doc = ">= <= > < ==", .required = true}, &CriterionSpec::op);
    v({.name = "value", .doc = "number, bool, or {baseline, factor}", .required = true},
      &CriterionSpec::value);
    v({.name = "source",
       .doc = "where the number comes from: physical, historical or oracle, a colon and the words; "
              "needed for what is measured, no place for counts, bools and baselines"},
      &CriterionSpec::source);
    v({.name = "unit", .doc = "must agree with the metric's suffix", .required = true},
      &CriterionSpec::unit);
    v({.name = "severity", .doc = "blocker, major or info", .required = true},
      &CriterionSpec::severity);
    v({.name = "evidence", .doc = "tests, samples, record or profile", .required = true},
      &CriterionSpec::evidence);
  }
};

/// One unit of work a worker does and reports by name.
struct CaseSpec {
  std::string id;
  nlohmann::json args = nlohmann::json::object();
  template <class V>
  static void describe(V& v) {
    v({.name = "id", .doc = "unique in the phase", .required = true}, &CaseSpec::id);
    v({.name = "args", .doc = "override the phase's args for this case"}, &CaseSpec::args);
  }
};

enum class OnUnmet { kDefer, kFail, kWarn };
template <>
struct EnumNames<OnUnmet> {
  static constexpr auto names = std::to_array<std::pair<OnUnmet, std::string_view>>(
      {{OnUnmet::kDefer, "defer"}, {OnUnmet::kFail, "fail"}, {OnUnmet::kWarn, "warn"}});
};

struct PhaseSpec {
  std::string id;
  std::string title;
  std::string
      run;  ///< builtin:NAME | nsa-worker:NAME | nsa-tests:FILTER | nsa-bench:FILTER | nsa-train
  nlohmann::json args = nlohmann::json::object();
  std::vector<std::string> free;  ///< args that --set may change without a deviation
  std::vector<CaseSpec> cases;    ///< default: one case named like the phase
  int64_t processes = 1;  ///< case groups; each runs all cases in a process of its own (A/B pairs)
  int64_t max_processes = 0;  ///< budget of the doublings of an undecided A/B; 0: none
  bool confirm = false;  ///< an A/B criterion that fails is measured once more before it counts
  std::string device;    ///< cpu | cuda; empty: the runbook's
  double minutes = 0;    ///< expected duration of one process for `plan`; 0: the kind's
  std::vector<std::string> needs;           ///< phases that must be COMPLETED before
  std::vector<std::string> needs_criteria;  ///< criteria of other phases that must PASS before
  std::map<std::string, nlohmann::json>
      require;  ///< fact -> "A100*" (glob), ">=1" (number) or true
  OnUnmet on_unmet = OnUnmet::kDefer;
  std::string launcher = "engine";  ///< of the ranks: engine | srun
  Required required = Required::kAlways;
  double timeout_s = 600;
  int64_t retries = 0;  ///< after infrastructure faults only
  std::vector<std::string> artifacts;
  std::map<std::string, std::string>
      switches;  ///< NSA_* set by the runbook for this phase (origin: config)
  std::vector<CriterionSpec> criteria;
  template <class V>
  static void describe(V& v) {
    v({.name = "id", .doc = "unique in the runbook; lower case, digits and _", .required = true},
      &PhaseSpec::id);
    v({.name = "title", .doc = "what the phase shows, in words"}, &PhaseSpec::title);
    v({.name = "run",
       .doc = "builtin:NAME, nsa-worker:NAME, nsa-tests:FILTER, nsa-bench:FILTER or nsa-train",
       .required = true},
      &PhaseSpec::run);
    v({.name = "args", .doc = "arguments declared by the phase kind"}, &PhaseSpec::args);
    v({.name = "free", .doc = "args that --set may change without a deviation"}, &PhaseSpec::free);
    v({.name = "cases", .doc = "cases; default: one named like the phase"}, &PhaseSpec::cases);
    v({.name = "processes", .doc = "processes that each run all cases", .unit = "count"},
      &PhaseSpec::processes);
    v({.name = "max_processes",
       .doc = "an A/B whose criterion is INCONCLUSIVE doubles its processes up to this number; the "
              "99 % is split over all looks; 0: no doubling",
       .unit = "count"},
      &PhaseSpec::max_processes);
    v({.name = "confirm",
       .doc = "an A/B criterion that fails is measured once more with fresh processes and seeds; "
              "it fails only when both do"},
      &PhaseSpec::confirm);
    v({.name = "device", .doc = "cpu or cuda; empty: the runbook's"}, &PhaseSpec::device);
    v({.name = "minutes", .doc = "expected duration of one process; 0: the kind's"},
      &PhaseSpec::minutes);
    v({.name = "needs", .doc = "phases that must be COMPLETED before"}, &PhaseSpec::needs);
    v({.name = "needs_criteria", .doc = "criteria of other phases that must PASS before"},
      &PhaseSpec::needs_criteria);
    v({.name = "require", .doc = "facts of the machine: fact -> glob, comparison or bool"},
      &PhaseSpec::require);
    v({.name = "on_unmet", .doc = "defer, fail or warn (run and record a deviation)"},
      &PhaseSpec::on_unmet);
    v({.name = "launcher",
       .doc = "what starts the ranks: engine (on this machine) or srun (on the nodes of the "
              "allocation that nsa-validate runs in)"},
      &PhaseSpec::launcher);
    v({.name = "required", .doc = "always, if_hardware, by_size or no"}, &PhaseSpec::required);
    v({.name = "timeout_s", .doc = "wall time limit of one process", .unit = "s"},
      &PhaseSpec::timeout_s);
    v({.name = "retries", .doc = "further attempts after infrastructure faults", .unit = "count"},
      &PhaseSpec::retries);
    v({.name = "artifacts", .doc = "files the phase must leave"}, &PhaseSpec::artifacts);
    v({.name = "switches", .doc = "NSA_* switches set for this phase"}, &PhaseSpec::switches);
    v({.name = "criteria", .doc = "what its figures must satisfy"}, &PhaseSpec::criteria);
  }
};

/// Who reaches for a runbook; `list` groups by it.
enum class RunbookUse { kCpu, kGpu, kTwoGpus, kPullRequest, kInstrument, kOther };
template <>
struct EnumNames<RunbookUse> {
  static constexpr auto names = std::to_array<std::pair<RunbookUse, std::string_view>>(
      {{RunbookUse::kCpu, "cpu"},
       {RunbookUse::kGpu, "gpu"},
       {RunbookUse::kTwoGpus, "two_gpus"},
       {RunbookUse::kPullRequest, "pull_request"},
       {RunbookUse::kInstrument, "instrument"},
       {RunbookUse::kOther, "other"}});
};

struct Runbook {
  std::string schema = "nsa-runbook/1";
  std::string name;
  std::string title;
  RunbookUse use = RunbookUse::kOther;
  std::string extends;   ///< runbook this one changes; merged by phase id and criterion id
  std::string scope;     ///< what a verdict of this runbook makes a statement about, and what not
  std::string hardware;  ///< expected SKU glob, e.g. "*A100*"; empty: any
  std::string device = "cpu";  ///< cpu | cuda: where workers run
  int64_t seed = 20250216;
  std::vector<std::string> goals;    ///< of runs before there were questions; refused when loaded
  std::vector<Sentence> answer;      ///< sentences at the top of the report
  std::vector<Question> questions;   ///< what the run is to decide, in the order of the report
  std::vector<NextStep> next_steps;  ///< what to do after the run
  std::vector<nlohmann::json>
      history;  ///< historical figures shown beside ours: {metric, value, unit, source}
  std::vector<PhaseSpec> phases;

  /// Where the workers of `phase` run.
  const std::string& device_of(const PhaseSpec& phase) const {
    return phase.device.empty() ? device : phase.device;
  }

  template <class V>
  static void describe(V& v) {
    v({.name = "schema", .doc = "nsa-runbook/1", .required = true}, &Runbook::schema);
    v({.name = "name", .doc = "runbook name, equal to the file's", .required = true},
      &Runbook::name);
    v({.name = "title", .doc = "one line for `list`", .required = true}, &Runbook::title);
    v({.name = "use",
       .doc = "where `list` shows it: cpu, gpu, two_gpus, pull_request, instrument or other"},
      &Runbook::use);
    v({.name = "extends", .doc = "runbook this one changes"}, &Runbook::extends);
    v({.name = "scope", .doc = "what the verdict makes a statement about"}, &Runbook::scope);
    v({.name = "hardware", .doc = "expected SKU glob; empty: any"}, &Runbook::hardware);
    v({.name = "device", .doc = "cpu or cuda"}, &Runbook::device);
    v({.name = "seed", .doc = "seed of every schedule and input"}, &Runbook::seed);
    v({.name = "goals", .doc = "of runs before there were questions; refused when loaded"},
      &Runbook::goals);
    v({.name = "answer", .doc = "sentences that the report begins with"}, &Runbook::answer);
    v({.name = "questions", .doc = "what the run is to decide"}, &Runbook::questions);
    v({.name = "next_steps", .doc = "what to do after the run"}, &Runbook::next_steps);
    v({.name = "history", .doc = "historical figures: {metric, value, unit, source}"},
      &Runbook::history);
    v({.name = "phases", .doc = "phases in display order", .required = true}, &Runbook::phases);
  }
};

}  // namespace harness

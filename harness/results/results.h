#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/results/answer.h"
#include "harness/schema/field.h"

/// The structs of results.json, the only source of a report. Steps stand in the order of the
/// runbook, every other array is sorted by id. A figure that does not exist is null, with its
/// reason beside it; NaN and infinities never enter the file. Keys of a figure and of a case that
/// would hold nothing (a bound it does not have, an empty reason) are left out.
/// Ids: G- question, P- phase, C- criterion, M- metric, A- artifact, D- deviation, F- finding, S-
/// series; unique in a run, shown in the report beside what they name.
namespace harness {

enum class StepStatus { kCompleted, kPartial, kDeferred, kFailed, kNotRun };
template <>
struct EnumNames<StepStatus> {
  static constexpr auto names =
      std::to_array<std::pair<StepStatus, std::string_view>>({{StepStatus::kCompleted, "COMPLETED"},
                                                              {StepStatus::kPartial, "PARTIAL"},
                                                              {StepStatus::kDeferred, "DEFERRED"},
                                                              {StepStatus::kFailed, "FAILED"},
                                                              {StepStatus::kNotRun, "NOT_RUN"}});
};

/// Cause of a phase that is NOT_RUN: left out by --only or --skip, or it needs a phase that is.
inline constexpr std::string_view kCauseSkipped = "SKIPPED";

enum class CriterionVerdict { kPass, kFail, kInconclusive, kNotEvaluated };
template <>
struct EnumNames<CriterionVerdict> {
  static constexpr auto names = std::to_array<std::pair<CriterionVerdict, std::string_view>>(
      {{CriterionVerdict::kPass, "PASS"},
       {CriterionVerdict::kFail, "FAIL"},
       {CriterionVerdict::kInconclusive, "INCONCLUSIVE"},
       {CriterionVerdict::kNotEvaluated, "NOT_EVALUATED"}});
};

enum class Severity { kBlocker, kMajor, kInfo };
template <>
struct EnumNames<Severity> {
  static constexpr auto names = std::to_array<std::pair<Severity, std::string_view>>(
      {{Severity::kBlocker, "blocker"}, {Severity::kMajor, "major"}, {Severity::kInfo, "info"}});
};

enum class Required { kAlways, kIfHardware, kBySize, kNo };
template <>
struct EnumNames<Required> {
  static constexpr auto names =
      std::to_array<std::pair<Required, std::string_view>>({{Required::kAlways, "always"},
                                                            {Required::kIfHardware, "if_hardware"},
                                                            {Required::kBySize, "by_size"},
                                                            {Required::kNo, "no"}});
};

enum class Priority { kImmediate, kFollowUp };
template <>
struct EnumNames<Priority> {
  static constexpr auto names = std::to_array<std::pair<Priority, std::string_view>>(
      {{Priority::kImmediate, "immediate"}, {Priority::kFollowUp, "follow-up"}});
};

/// One case of a phase, as in the raw evidence.
struct CaseResult {
  std::string id;      ///< unique in the phase; "group/case" when the phase runs several processes
  std::string status;  ///< ok | failed | missing
  std::string reason;  ///< why it failed or is missing; empty when ok
  std::string file;    ///< raw evidence file, relative to the run folder
  template <class V>
  static void describe(V& v) {
    v({.name = "id", .doc = "group/case, unique in the phase", .required = true}, &CaseResult::id);
    v({.name = "status", .doc = "ok, failed or missing", .required = true}, &CaseResult::status);
    v({.name = "reason", .doc = "why it failed or is missing", .brief = true}, &CaseResult::reason);
    v({.name = "file", .doc = "raw evidence file, relative to the run folder"}, &CaseResult::file);
  }
};

struct PhaseResult {
  std::string id;    ///< P-<phase id of the runbook>
  std::string name;  ///< phase id of the runbook
  std::string title;
  std::string run;  ///< what ran, e.g. "nsa-worker:ranges_ab"
  Required required = Required::kAlways;
  StepStatus status = StepStatus::kNotRun;
  std::string cause;   ///< from the closed list of causes; empty when COMPLETED
  std::string reason;  ///< one sentence; what would make it runnable when DEFERRED
  double seconds = 0;  ///< wall time of all attempts
  int64_t attempts = 0;
  int64_t cases_planned = 0;
  int64_t cases_ok = 0;
  std::vector<CaseResult> cases;
  template <class V>
  static void describe(V& v) {
    v({.name = "id", .doc = "P- and the phase's name", .required = true}, &PhaseResult::id);
    v({.name = "name", .doc = "phase id in the runbook", .required = true}, &PhaseResult::name);
    v({.name = "title", .doc = "what the phase shows, in words"}, &PhaseResult::title);
    v({.name = "run", .doc = "what ran", .required = true}, &PhaseResult::run);
    v({.name = "required", .doc = "always, if_hardware, by_size or no", .required = true},
      &PhaseResult::required);
    v({.name = "status", .doc = "step status", .required = true}, &PhaseResult::status);
    v({.name = "cause", .doc = "cause from the closed list; empty when COMPLETED"},
      &PhaseResult::cause);
    v({.name = "reason", .doc = "one sentence"}, &PhaseResult::reason);
    v({.name = "seconds", .doc = "wall time of all attempts", .unit = "s"}, &PhaseResult::seconds);
    v({.name = "attempts", .doc = "how often it was started", .unit = "count"},
      &PhaseResult::attempts);
    v({.name = "cases_planned", .doc = "cases the plan holds", .unit = "count"},
      &PhaseResult::cases_planned);
    v({.name = "cases_ok", .doc = "cases that ended ok", .unit = "count"}, &PhaseResult::cases_ok);
    v({.name = "cases", .doc = "every case with its raw evidence"}, &PhaseResult::cases);
  }
};

/// A figure. `lo`/`hi` bound it at `level` (verdict interval); `lo95`/`hi95` are the shown 95 %
/// interval.
struct Metric {
  std::string id;     ///< M-<name>
  std::string name;   ///< phase.subject[.case].quantity_unit
  std::string phase;  ///< phase id of the runbook
  std::string unit;
  std::optional<double> value, lo, hi, lo95, hi95;
  double level = 0;                  ///< confidence level of lo/hi, e.g. 0.99; 0 for exact figures
  int64_t n = 0;                     ///< units of analysis behind the figure (processes for an A/B)
  std::string method;                ///< exact | paired_ratio | paired_overhead | median | rate
  std::string verdict;               ///< A/B only: FASTER | SLOWER | EQUIVALENT | INCONCLUSIVE
  std::vector<std::string> samples;  ///< raw evidence files, relative to the run folder
  std::string withheld;              ///< why a measured figure is not valid; empty when it is
  std::string null_reason;           ///< why value is null; empty when it is not
  nlohmann::json details =
      nlohmann::json::object();  ///< estimator's own facts (noise floor, MDE, per-process ratios)
  template <class V>
  static void describe(V& v) {
    v({.name = "id", .doc = "M- and the name", .required = true}, &Metric::id);
    v({.name = "name", .doc = "phase.subject[.case].quantity_unit", .required = true},
      &Metric::name);
    v({.name = "phase", .doc = "phase that measured it", .required = true}, &Metric::phase);
    v({.name = "unit",
       .doc = "one of ms us s tok_s mib gb_s tflop_s pct ratio count bool nat",
       .required = true},
      &Metric::unit);
    v({.name = "value", .doc = "the figure; null when there is none"}, &Metric::value);
    v({.name = "lo", .doc = "lower bound at `level`", .brief = true}, &Metric::lo);
    v({.name = "hi", .doc = "upper bound at `level`", .brief = true}, &Metric::hi);
    v({.name = "lo95", .doc = "lower bound of the shown 95 % interval", .brief = true},
      &Metric::lo95);
    v({.name = "hi95", .doc = "upper bound of the shown 95 % interval", .brief = true},
      &Metric::hi95);
    v({.name = "level", .doc = "confidence level of lo and hi; 0 for exact figures", .brief = true},
      &Metric::level);
    v({.name = "n", .doc = "units of analysis behind the figure", .unit = "count"}, &Metric::n);
    v({.name = "method", .doc = "exact, paired_ratio, paired_overhead, median or rate"},
      &Metric::method);
    v({.name = "verdict", .doc = "A/B verdict; empty elsewhere", .brief = true}, &Metric::verdict);
    v({.name = "samples", .doc = "raw evidence files"}, &Metric::samples);
    v({.name = "withheld", .doc = "why a measured figure is not valid", .brief = true},
      &Metric::withheld);
    v({.name = "null_reason", .doc = "why value is null", .brief = true}, &Metric::null_reason);
    v({.name = "details", .doc = "the estimator's own facts", .brief = true}, &Metric::details);
  }
};

struct CriterionResult {
  std::string id;  ///< C-...
  std::string phase;
  std::string text;                 ///< the requirement in words
  std::string metric;               ///< metric name
  std::string op;                   ///< >= <= > < ==
  std::optional<double> threshold;  ///< resolved (a baseline criterion: baseline value x factor)
  std::string threshold_source;  ///< "runbook", "physical: ...", "baseline FILE: METRIC x FACTOR"
  std::string unit;
  Severity severity = Severity::kBlocker;
  std::string evidence;  ///< tests | samples | record | profile
  CriterionVerdict verdict = CriterionVerdict::kNotEvaluated;
  std::string reason;  ///< one sentence naming what decided
  std::optional<double>
      observed;  ///< what was compared: the value (exact) or the interval's bound (measured)
  std::optional<double>
      margin;  ///< distance of `observed` from the threshold, positive when passed
  template <class V>
  static void describe(V& v) {
    v({.name = "id", .doc = "C- and a name", .required = true}, &CriterionResult::id);
    v({.name = "phase", .doc = "phase it belongs to", .required = true}, &CriterionResult::phase);
    v({.name = "text", .doc = "the requirement in words"}, &CriterionResult::text);
    v({.name = "metric", .doc = "metric it reads", .required = true}, &CriterionResult::metric);
    v({.name = "op", .doc = "comparison", .required = true}, &CriterionResult::op);
    v({.name = "threshold", .doc = "resolved threshold"}, &CriterionResult::threshold);
    v({.name = "threshold_source",
       .doc = "runbook, the source it names, or the baseline file and factor"},
      &CriterionResult::threshold_source);
    v({.name = "unit", .doc = "unit of threshold and figure"}, &CriterionResult::unit);
    v({.name = "severity", .doc = "blocker, major or info", .required = true},
      &CriterionResult::severity);
    v({.name = "evidence", .doc = "tests, samples, record or profile"}, &CriterionResult::evidence);
    v({.name = "verdict", .doc = "PASS, FAIL, INCONCLUSIVE or NOT_EVALUATED", .required = true},
      &CriterionResult::verdict);
    v({.name = "reason", .doc = "what decided, in one sentence"}, &CriterionResult::reason);
    v({.name = "observed", .doc = "the compared number: value (exact) or bound (measured)"},
      &CriterionResult::observed);
    v({.name = "margin", .doc = "distance from the threshold, positive when passed"},
      &CriterionResult::margin);
  }
};

struct Deviation {
  std::string id;    ///< D-...
  std::string what;  ///< e.g. "--set smoke.steps=5 (runbook: 200)"
  std::string why;
  template <class V>
  static void describe(V& v) {
    v({.name = "id", .doc = "D- and a name", .required = true}, &Deviation::id);
    v({.name = "what", .doc = "what differs from the runbook", .required = true}, &Deviation::what);
    v({.name = "why", .doc = "who or what caused it"}, &Deviation::why);
  }
};

struct Finding {
  std::string id;    ///< F-...
  std::string code;  ///< e.g. ORACLE_MISMATCH, LOSS_TOO_GOOD (docs/faults.md), or a cause
  std::string symptom;
  std::string fact;  ///< id of the metric, criterion, phase or artifact that shows it
  std::string cause;
  std::string action;
  Priority priority = Priority::kFollowUp;
  template <class V>
  static void describe(V& v) {
    v({.name = "id", .doc = "F- and a name", .required = true}, &Finding::id);
    v({.name = "code", .doc = "code from the closed list", .required = true}, &Finding::code);
    v({.name = "symptom", .doc = "what was seen", .required = true}, &Finding::symptom);
    v({.name = "fact", .doc = "id of what shows it", .required = true}, &Finding::fact);
    v({.name = "cause", .doc = "why it happens"}, &Finding::cause);
    v({.name = "action", .doc = "what to do next"}, &Finding::action);
    v({.name = "priority", .doc = "immediate or follow-up"}, &Finding::priority);
  }
};

struct Artifact {
  std::string id;      ///< A-<path with / as .>
  std::string path;    ///< relative to the run folder
  std::string sha256;  ///< lower-case hex
  int64_t bytes = 0;
  std::string by;  ///< phase or engine part that wrote it
  template <class V>
  static void describe(V& v) {
    v({.name = "id", .doc = "A- and the path", .required = true}, &Artifact::id);
    v({.name = "path", .doc = "relative to the run folder", .required = true}, &Artifact::path);
    v({.name = "sha256", .doc = "lower-case hex", .required = true}, &Artifact::sha256);
    v({.name = "bytes", .doc = "size", .required = true}, &Artifact::bytes);
    v({.name = "by", .doc = "who wrote it"}, &Artifact::by);
  }
};

/// A switch as the worker that used it saw it.
struct Setting {
  std::string name, value, origin;  ///< origin: default | config | environment | command line
  std::string phase;                ///< phase whose worker reported it
  template <class V>
  static void describe(V& v) {
    v({.name = "name", .doc = "switch", .required = true}, &Setting::name);
    v({.name = "value", .doc = "effective value", .required = true}, &Setting::value);
    v({.name = "origin", .doc = "default, config, environment or command line", .required = true},
      &Setting::origin);
    v({.name = "phase", .doc = "phase whose worker reported it"}, &Setting::phase);
  }
};

/// Points of a plot: figures of a phase over steps, or over a size. Long lines are thinned, with
/// the smallest and the largest point of every stretch kept.
struct Series {
  std::string id;                                   ///< S-<phase>.<what>
  std::string phase;                                ///< phase id of the runbook
  std::string title;                                ///< what it shows
  std::string kind;                                 ///< steps | scaling
  std::string x;                                    ///< what runs along x, e.g. "step"
  std::string unit;                                 ///< of y
  nlohmann::json lines = nlohmann::json::array();   ///< [{name, seen, points: [[x, y(, lo, hi)]]}]
  nlohmann::json limits = nlohmann::json::array();  ///< [{criterion, op, value}] of the figure
  template <class V>
  static void describe(V& v) {
    v({.name = "id", .doc = "S- and a name", .required = true}, &Series::id);
    v({.name = "phase", .doc = "phase that measured it", .required = true}, &Series::phase);
    v({.name = "title", .doc = "what it shows"}, &Series::title);
    v({.name = "kind", .doc = "steps or scaling", .required = true}, &Series::kind);
    v({.name = "x", .doc = "what runs along x", .required = true}, &Series::x);
    v({.name = "unit", .doc = "unit of y", .required = true}, &Series::unit);
    v({.name = "lines",
       .doc = "{name, seen: points before thinning, points: [[x, y] or [x, y, lo, hi]]}"},
      &Series::lines);
    v({.name = "limits", .doc = "thresholds on the figure: {criterion, op, value}"},
      &Series::limits);
  }
};

struct Verdict {
  std::string
      word;  ///< GO | CONDITIONAL GO | PARTIAL | NO-GO | NO-GO (evidence | fault | undecided)
  int64_t exit = 3;                     ///< exit code of the process; docs/verdicts.md
  std::string rule;                     ///< the rule that fired, in words
  std::string weakest;                  ///< id and sentence of the weakest criterion or phase
  std::string scope;                    ///< what the verdict makes a statement about, and what not
  std::vector<std::string> conditions;  ///< of a CONDITIONAL GO, or of what a PARTIAL run judged
  std::string gate = "strict";          ///< strict | advisory
  template <class V>
  static void describe(V& v) {
    v({.name = "word", .doc = "verdict word", .required = true}, &Verdict::word);
    v({.name = "exit", .doc = "exit code", .required = true}, &Verdict::exit);
    v({.name = "rule", .doc = "the rule that fired", .required = true}, &Verdict::rule);
    v({.name = "weakest", .doc = "weakest criterion or phase"}, &Verdict::weakest);
    v({.name = "scope", .doc = "what the verdict makes a statement about"}, &Verdict::scope);
    v({.name = "conditions",
       .doc = "conditions of a CONDITIONAL GO, or of what a PARTIAL run judged"},
      &Verdict::conditions);
    v({.name = "gate", .doc = "strict or advisory"}, &Verdict::gate);
  }
};

/// Who ran what, when. Written once at the start of a run (run.json) and copied into the results.
struct RunInfo {
  std::string id;       ///< runbook name and start time, e.g. smoke_cpu-20261121T093000Z
  std::string runbook;  ///< name
  std::string runbook_title;
  std::string runbook_sha256;  ///< of the effective runbook.json in the run folder
  std::vector<std::string> command_line;
  std::string started;  ///< ISO 8601 UTC
  int64_t seed = 0;
  std::string gate = "strict";
  std::string revision = "1";
  std::string supersedes;  ///< ledger head of the revision before; empty for the first
  template <class V>
  static void describe(V& v) {
    v({.name = "id", .doc = "runbook name and start time", .required = true}, &RunInfo::id);
    v({.name = "runbook", .doc = "runbook name", .required = true}, &RunInfo::runbook);
    v({.name = "runbook_title", .doc = "runbook title"}, &RunInfo::runbook_title);
    v({.name = "runbook_sha256", .doc = "of the effective runbook in the run folder"},
      &RunInfo::runbook_sha256);
    v({.name = "command_line", .doc = "argv of the engine"}, &RunInfo::command_line);
    v({.name = "started", .doc = "ISO 8601 UTC"}, &RunInfo::started);
    v({.name = "seed", .doc = "seed of every schedule and input"}, &RunInfo::seed);
    v({.name = "gate", .doc = "strict or advisory"}, &RunInfo::gate);
    v({.name = "revision", .doc = "revision of this report", .before = "edition"},
      &RunInfo::revision);
    v({.name = "supersedes", .doc = "ledger head of the revision before"}, &RunInfo::supersedes);
  }
};

/// Of results.json. 1: RunInfo had the key "edition".
inline constexpr std::string_view kResultsSchema = "nsa-results/2";

struct Results {
  std::string schema = std::string(kResultsSchema);
  RunInfo run;
  nlohmann::json environment =
      nlohmann::json::object();  ///< provenance facts, environment.json as it is
  std::vector<PhaseResult> phases;
  std::vector<Metric> metrics;
  std::vector<CriterionResult> criteria;
  std::vector<Deviation> deviations;
  std::vector<Finding> findings;
  std::vector<Setting> settings;
  std::vector<Artifact> artifacts;
  nlohmann::json tables =
      nlohmann::json::array();  ///< phase tables for the report: [{id,title,phase,columns,rows}]
  std::vector<Series> series;   ///< points of plots
  nlohmann::json history =
      nlohmann::json::array();  ///< historical figures of the runbook: [{metric,value,unit,source}]
  std::vector<Sentence> answer;      ///< of the runbook
  std::vector<Question> questions;   ///< of the runbook, decided_by with whole ids
  std::vector<NextStep> next_steps;  ///< of the runbook
  Verdict verdict;
  template <class V>
  static void describe(V& v) {
    v({.name = "schema", .doc = kResultsSchema, .required = true}, &Results::schema);
    v({.name = "run", .doc = "who ran what, when", .required = true}, &Results::run);
    v({.name = "environment", .doc = "provenance facts"}, &Results::environment);
    v({.name = "phases", .doc = "every phase of the plan", .required = true}, &Results::phases);
    v({.name = "metrics", .doc = "every figure", .required = true}, &Results::metrics);
    v({.name = "criteria", .doc = "every criterion", .required = true}, &Results::criteria);
    v({.name = "deviations", .doc = "differences from the runbook"}, &Results::deviations);
    v({.name = "findings", .doc = "symptom, fact, cause, action"}, &Results::findings);
    v({.name = "settings", .doc = "switches as workers saw them"}, &Results::settings);
    v({.name = "artifacts", .doc = "files with their hashes"}, &Results::artifacts);
    v({.name = "tables", .doc = "phase tables for the report"}, &Results::tables);
    v({.name = "series", .doc = "points of plots"}, &Results::series);
    v({.name = "history",
       .doc = "historical figures shown beside ours: {metric, value, unit, source}"},
      &Results::history);
    v({.name = "answer", .doc = "sentences that the report begins with"}, &Results::answer);
    v({.name = "questions", .doc = "what the run was to decide; decided_by has whole ids"},
      &Results::questions);
    v({.name = "next_steps", .doc = "what to do after the run"}, &Results::next_steps);
    v({.name = "verdict", .doc = "the verdict", .required = true}, &Results::verdict);
  }
};

}  // namespace harness

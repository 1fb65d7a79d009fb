#include "harness/evidence/derive/derive.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "harness/evidence/derive/ab_stages.h"
#include "harness/evidence/derive/baselines.h"
#include "harness/evidence/derive/environment_sections.h"
#include "harness/evidence/derive/findings.h"
#include "harness/evidence/derive/raw_evidence.h"
#include "harness/evidence/derive/runbook_words.h"
#include "harness/evidence/derive/unjudged_checks.h"
#include "harness/evidence/revision.h"
#include "harness/evidence/storage/ledger.h"
#include "harness/evidence/storage/run_files.h"
#include "harness/evidence/tables/catch_matrix.h"
#include "harness/evidence/tables/figure_tables.h"
#include "harness/evidence/tables/series.h"
#include "harness/schema/parse/nearest.h"
#include "harness/schema/write.h"
#include "harness/stats/estimators/estimators.h"
#include "harness/verdict/verdict.h"

namespace harness {
namespace {

using nlohmann::json;

/// Builds the results phase by phase.
class Deriver {
 public:
  explicit Deriver(const RunFolder& run) : run_(run), files_(read_run_files(run)) {
    results_.run = files_.run;
    results_.environment = files_.environment;
    results_.deviations = files_.plan.deviations;
    results_.history = files_.runbook.history;
    add_runbook_words(files_.runbook, results_);
    baselines_ = read_baselines(run, files_.run.runbook, files_.environment);
  }

  Derived derive() && {
    for (const PhaseSpec& spec : files_.runbook.phases) add_phase(spec, planned(spec.id));
    add_versions_table();
    append(tables_, training_table(training_));
    add_artifacts();
    add_settings_and_criteria();
    append(results_.findings, failed_checks_);
    append(results_.deviations, unjudged_checks(failed_checks_, results_.criteria));
    check_needed_criteria();
    check_rewritten();
    add_limits(results_.series, results_.criteria);
    add_revision();
    add_catch_matrix();
    append(results_.findings, result_findings(results_));
    sort_by_id();
    decide_verdict();
    return {std::move(results_), std::move(problems_)};
  }

 private:
  const PlannedPhase& planned(const std::string& id) const {
    return *std::find_if(files_.plan.phases.begin(), files_.plan.phases.end(),
                         [&](const PlannedPhase& p) { return p.id == id; });
  }

  void add_phase(const PhaseSpec& spec, const PlannedPhase& plan) {
    RawPhase raw;
    PhaseEnd end;
    AbStages stages{.taken = plan, .confirming = {}, .looks = 1, .problems = {}};
    try {
      end = read_phase_end(run_, plan);
      stages = ab_stages(run_, files_, baselines_, plan);
      raw = read_raw_phase(run_, files_, stages.taken, end);
      append(raw.problems, stages.problems);
    } catch (const EvidenceError& problem) {
      end = {.status = StepStatus::kFailed,
             .cause = "EVIDENCE_DAMAGED",
             .reason = problem.what(),
             .seconds = 0,
             .attempts = 0,
             .faults = {},
             .slow = {}};
      raw.view.phase = plan.id;
      raw.view.missing = problem.what();
      raw.problems.push_back(problem);
    }
    const PhaseResult result = phase_result(spec, end, raw);
    const size_t first_metric = results_.metrics.size();
    add_figures(spec, plan, stages, raw);
    const std::span<const Metric> figures(
        results_.metrics.begin() + static_cast<std::ptrdiff_t>(first_metric),
        results_.metrics.end());
    append(tables_, kind_tables(files_.kinds.at(plan.kind), plan.id, figures));
    if (declares_training(files_.kinds.at(plan.kind)))
      training_.push_back(training_row(plan, result, raw.groups, figures));
    add_lines(plan, raw);
    append(results_.series, step_series(plan.id, raw.groups));
    append(results_.series, scaling_series(files_.kinds.at(plan.kind), plan.id, figures));
    append(results_.findings, phase_findings(result, raw, end.slow));
    append(failed_checks_, check_findings(result, raw));
    append(problems_, raw.problems);
    append(faults_, end.faults);
    results_.phases.push_back(result);
  }

  static PhaseResult phase_result(const PhaseSpec& spec, const PhaseEnd& end, const RawPhase& raw) {
    PhaseResult result;
    result.id = "P-" + spec.id;
    result.name = spec.id;
    result.title = spec.title;
    result.run = spec.run;
    result.required = spec.required;
    result.status = end.status;
    result.cause = end.cause;
    result.reason = end.reason;
    result.seconds = end.seconds;
    result.attempts = end.attempts;
    result.cases_planned = raw.cases_planned;
    result.cases_ok = raw.cases_ok;
    result.cases = raw.cases;
    return result;
  }

  void add_figures(const PhaseSpec& spec, const PlannedPhase& plan, const AbStages& stages,
                   const RawPhase& raw) {
    const EvidenceView measured = measured_view(stages, raw.view),
                       again = confirming_view(stages, raw.view);
    for (const MetricSpec& metric : files_.kinds.at(plan.kind).metrics) {
      if (!metric.device.empty() && metric.device != plan.device) continue;
      if (!estimators().contains(metric.estimator))
        throw EvidenceError("kinds.json", "names the estimator " + in_quotes(metric.estimator) +
                                              ", which this program lacks");
      results_.metrics.push_back(estimate(metric, is_sampled(metric) ? measured : raw.view));
      if (!is_paired(metric)) continue;
      add_stages(metric, stages, again, results_.metrics.back());
      add_settings(files_.kinds.at(plan.kind), results_.metrics.back());
    }
    for (const CriterionSpec& criterion : spec.criteria) waiting_.emplace_back(criterion, spec.id);
  }

  /// What a user sets to have an arm stands beside its name.
  static void add_settings(const KindSpec& kind, Metric& metric) {
    for (const char* which : {"baseline", "candidate"}) {
      if (!metric.details.contains(which)) continue;
      auto& side = metric.details[which];
      const auto setting = kind.settings.find(side.value("arm", ""));
      if (setting != kind.settings.end()) side["setting"] = setting->second;
    }
  }

  /// Looks and confirmation stand beside the figure they belong to.
  void add_stages(const MetricSpec& spec, const AbStages& stages, const EvidenceView& again,
                  Metric& metric) {
    const bool confirms = std::ranges::any_of(
        stages.taken.further, [](const auto& stage) { return stage.id == kConfirmStage; });
    if (!confirms) return;
    confirmable_.insert(metric.name);
    if (again.groups.empty()) return;
    Metric second = estimate(spec, again);
    metric.details["confirmation"] = {
        {"value", to_json(second.value)}, {"lo", to_json(second.lo)},
        {"hi", to_json(second.hi)},       {"n", second.n},
        {"verdict", second.verdict},      {"no_value", second.null_reason},
        {"samples", second.samples}};
    confirmations_.push_back(std::move(second));
  }

  void add_lines(const PlannedPhase& plan, const RawPhase& raw) {
    std::set<std::string> tables;
    for (const RawGroup& group : raw.groups) {
      for (const auto& line : group.tables) {
        const std::string id = plan.id + "." + line.id;
        tables_.push_back({{"id", tables.insert(id).second ? id : id + "." + group.id},
                           {"title", line.title},
                           {"phase", plan.id},
                           {"columns", line.columns},
                           {"rows", line.rows}});
      }
      for (const auto& value : group.hello.switches)
        settings_.insert({value.name, plan.id, value.value, value.origin});
      for (const auto& [library, version] : group.hello.versions) {
        versions_[{library, version}].insert(plan.id);
        if (version == "debug build")
          deviate("D-library." + plan.id,
                  library + " of phase " + plan.id + " is a debug build: its times are no evidence",
                  "DEBUG_LIBRARY");
      }
      check_build_id_of(plan, group);
    }
    for (const GroupEvidence& group : raw.view.groups)
      for (const CheckLine& check : group.checks)
        if (!check.ok && check.code == "DATA_SUBSTITUTED")
          deviate("D-data." + plan.id,
                  "phase " + plan.id + " did not run on the named corpus: " + check.detail,
                  "DATA_SUBSTITUTED");
  }

  /// The worker's own word against the engine's: another program answered than the one the report
  /// names.
  void check_build_id_of(const PlannedPhase& plan, const RawGroup& group) {
    const json engine = files_.environment.value("/build/build_id"_json_pointer, json());
    if (!engine.is_string() || group.hello.build_id.empty() ||
        group.hello.build_id == engine.get<std::string>())
      return;
    deviate("D-build." + plan.id,
            "the worker of phase " + plan.id + " is of build " + group.hello.build_id +
                ", the engine of " + engine.get<std::string>(),
            "PROVENANCE_MISMATCH");
    const CodeAdvice advice = advice_for("PROVENANCE_MISMATCH");
    const std::string id = "F-" + plan.id + ".PROVENANCE_MISMATCH";
    for (const Finding& known : results_.findings)
      if (known.id == id) return;
    results_.findings.push_back({id, "PROVENANCE_MISMATCH",
                                 "worker and engine are of different builds", "P-" + plan.id,
                                 advice.cause, advice.action, advice.priority});
  }

  void deviate(const std::string& id, const std::string& what, const std::string& why) {
    for (const Deviation& known : results_.deviations)
      if (known.id == id) return;
    results_.deviations.push_back({id, what, why});
  }

  void add_versions_table() {
    json rows = json::array();
    for (const auto& [library, phases] : versions_) {
      std::string names;
      for (const std::string& phase : phases) names += (names.empty() ? "" : ", ") + phase;
      rows.push_back({library.first, library.second, names});
    }
    if (!rows.empty())
      tables_.push_back({{"id", "versions"},
                         {"title", "Library versions as the workers saw them"},
                         {"phase", ""},
                         {"columns", {"library", "version", "phases"}},
                         {"rows", rows}});
  }

  void add_artifacts() {
    std::set<std::string> ids;
    for (const std::string& path : run_.paths()) {
      const std::string kind = ledger_kind(path);
      if (is_outside_ledger(path) || !is_raw_kind(kind)) continue;
      std::string id = "A-" + path;
      std::replace(id.begin(), id.end(), '/', '.');
      while (!ids.insert(id).second) id += "~";
      results_.artifacts.push_back(
          {id, path, run_.sha256(path), run_.bytes(path), writer_of(path)});
    }
  }

  static std::string writer_of(const std::string& path) {
    if (!path.starts_with("phases/")) return "engine";
    const size_t begin = std::string("phases/").size();
    return "phase " + path.substr(begin, path.find('/', begin) - begin);
  }

  void add_settings_and_criteria() {
    for (const auto& [name, phase, value, origin] : settings_)
      results_.settings.push_back({name, value, origin, phase});
    for (const auto& [criterion, phase] : waiting_)
      results_.criteria.push_back(judged(criterion, phase));
  }

  CriterionResult judged(const CriterionSpec& criterion, const std::string& phase) const {
    CriterionResult first = judge(criterion, phase, results_.metrics, baselines_);
    if (!confirmable_.contains(criterion.metric) || criterion.severity == Severity::kInfo)
      return first;
    const bool again =
        std::ranges::find(confirmations_, criterion.metric, &Metric::name) != confirmations_.end();
    const CriterionResult second = judge(criterion, phase, confirmations_, baselines_);
    return confirmed(std::move(first), again ? &second : nullptr);
  }

  /// What a process wrote over a file that the run is judged by; the engine put that back.
  void check_rewritten() {
    const std::string folder = "rewritten/";
    for (const std::string& path : run_.paths())
      if (path.starts_with(folder))
        problems_.emplace_back(path.substr(folder.size()),
                               "was changed while the run went on; what was planned is in its "
                               "place, what was written is in " +
                                   path);
  }

  /// Whether a phase that needs criteria ran must follow from the criteria.
  void check_needed_criteria() {
    for (const PhaseResult& phase : results_.phases) {
      const std::vector<std::string>& needed = planned(phase.name).needs_criteria;
      if (needed.empty()) continue;
      const std::string unmet = unmet_criteria(needed, results_.criteria);
      const std::string file = "phases/" + phase.name + "/phase.json";
      if (phase.attempts > 0 && !unmet.empty())
        problems_.emplace_back(file, "the phase ran, but it " + unmet);
      if (phase.cause == kCauseCriteria && unmet.empty())
        problems_.emplace_back(file,
                               "records " + phase.cause + ", but every criterion it needs PASSes");
    }
  }

  /// A later revision names the one before and compares each of its criteria.
  void add_revision() {
    if (files_.run.supersedes.empty()) return;
    try {
      const Results before = read_superseded(run_, files_.run.supersedes);
      tables_.push_back(revision_table(before, results_));
    } catch (const EvidenceError& problem) {
      problems_.push_back(problem);
    }
  }

  void add_catch_matrix() {
    try {
      const json table = catch_matrix_table(run_, files_.environment);
      if (!table.is_null()) tables_.push_back(table);
    } catch (const EvidenceError& problem) {
      problems_.push_back(problem);
    }
  }

  void sort_by_id() {
    const auto sort = [](auto&... lists) {
      (std::ranges::sort(lists, {}, [](const auto& x) -> const auto& { return x.id; }), ...);
    };
    sort(results_.metrics, results_.criteria, results_.deviations, results_.findings,
         results_.artifacts, results_.series);
    std::sort(tables_.begin(), tables_.end(),
              [](const json& a, const json& b) { return a["id"] < b["id"]; });
    results_.tables = tables_;
  }

  int64_t planned_gpus() const {
    const auto count = files_.plan.facts.find("gpu.count");
    return count != files_.plan.facts.end() && count->is_number() ? count->get<int64_t>() : 0;
  }

  void decide_verdict() {
    results_.verdict = decide({.phases = results_.phases,
                               .criteria = results_.criteria,
                               .deviations = results_.deviations,
                               .faults = faults_,
                               .evidence_ok = problems_.empty(),
                               .gate = files_.run.gate,
                               .scope = files_.runbook.scope,
                               .gpus = planned_gpus()});
  }

  template <class T>
  static void append(std::vector<T>& to, const std::vector<T>& from) {
    to.insert(to.end(), from.begin(), from.end());
  }

  const RunFolder& run_;
  RunFiles files_;
  Baselines baselines_;
  Results results_;
  std::vector<EvidenceError> problems_;
  std::vector<json> tables_;
  std::vector<json> training_;  ///< rows of the table of training runs
  std::vector<Finding> failed_checks_;
  std::vector<std::string> faults_;
  std::vector<Metric> confirmations_;  ///< paired figures of the second measurement
  std::set<std::string> confirmable_;  ///< paired figures whose plan holds one
  std::vector<std::pair<CriterionSpec, std::string>> waiting_;  ///< criterion, phase
  std::set<std::tuple<std::string, std::string, std::string, std::string>> settings_;
  std::map<std::pair<std::string, std::string>, std::set<std::string>> versions_;
};

}  // namespace

Derived derive_all(const RunFolder& run) { return Deriver(run).derive(); }

Results derive(const std::filesystem::path& run_dir) {
  return derive_all(RunFolder(run_dir)).results;
}

/// A value a line, so that versions can be compared, without the indentation that is a third of it.
std::string results_text(const Results& results) { return lines_dump(to_json(results)); }

Results read_results(const RunFolder& run) {
  Results results = read_as<Results>(run, "results.json");
  if (results.schema != kResultsSchema && results.schema != "nsa-results/1")
    throw EvidenceError("results.json", "has the schema " + in_quotes(results.schema) +
                                            ", this version reads " + std::string(kResultsSchema) +
                                            " and nsa-results/1; `report DIR` renders it again");
  require_sections(results.environment, "results.json");
  return results;
}

}  // namespace harness

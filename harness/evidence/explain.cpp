#include "harness/evidence/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/text/plain_text.h"
#include "harness/evidence/derive/ab_stages.h"
#include "harness/evidence/derive/baselines.h"
#include "harness/evidence/derive/derive.h"
#include "harness/evidence/derive/raw_evidence.h"
#include "harness/evidence/formulas.h"
#include "harness/evidence/storage/run_files.h"
#include "harness/results/number.h"
#include "harness/results/sentence.h"
#include "harness/schema/parse/nearest.h"

namespace harness {
namespace {

constexpr size_t kShownSamples = 12;  ///< of each series and file; the file holds them all

/// All digits: who asks for an explanation wants to compute again.
std::string number(const std::optional<double>& value) {
  return value ? fmt::format("{}", *value) : "none";
}

/// The id of the metric that sentences and tables call by its name; `id` where there is none.
std::string named_metric(const Results& results, const std::string& id) {
  const auto found = std::ranges::find(results.metrics, id, &Metric::name);
  return found == results.metrics.end() ? id : found->id;
}

constexpr const char* kAnswer = "answer";  ///< the sentences at the top of a report

class Explainer {
 public:
  Explainer(const RunFolder& run, const std::string& id)
      : run_(run), results_(read_results(run)), id_(named_metric(results_, id)) {}

  std::string text() && {
    const bool known = find(results_.metrics, &Explainer::metric) ||
                       find(results_.criteria, &Explainer::criterion) ||
                       find(results_.phases, &Explainer::phase) ||
                       find(results_.artifacts, &Explainer::artifact) ||
                       find(results_.deviations, &Explainer::deviation) ||
                       find(results_.findings, &Explainer::finding) ||
                       find(results_.questions, &Explainer::question) ||
                       find(results_.series, &Explainer::series) || find_table() || find_answer();
    if (!known)
      throw ConfigError("no id " + in_quotes(id_) + " in this run" + did_you_mean(id_, ids_));
    line("again", "nsa-validate verify " + run_.where().string());
    return text_;
  }

 private:
  template <class T>
  bool find(const std::vector<T>& items, void (Explainer::*show)(const T&)) {
    for (const T& item : items) {
      ids_.push_back(item.id);
      if (item.id != id_) continue;
      (this->*show)(item);
      return true;
    }
    return false;
  }

  /// Tables have ids without a letter, PHASE.NAME; rows are shown as they stand.
  bool find_table() {
    for (const auto& table : results_.tables) {
      const std::string id = table.value("id", "");
      ids_.push_back(id);
      if (id != id_) continue;
      line(id, table.value("title", ""));
      line("columns", table.value("columns", nlohmann::json::array()).dump());
      for (const auto& row : table.value("rows", nlohmann::json::array())) line("row", row.dump());
      phase_files(table.value("phase", ""));
      return true;
    }
    return false;
  }

  bool find_answer() {
    ids_.emplace_back(kAnswer);
    if (id_ != kAnswer) return false;
    for (const Sentence& sentence : results_.answer) {
      line("sentence", sentence.text);
      for (const std::string& id : sentence.when) line("  where", id + " is PASS");
      line("otherwise", sentence.otherwise);
      figures_of(sentence.text);
      figures_of(sentence.otherwise);
    }
    return true;
  }

  /// The figures that a sentence names as {METRIC}.
  void figures_of(const std::string& sentence) {
    put_together(
        sentence, [](std::string_view) { return ""; },
        [this](std::string_view name) {
          const auto m = std::ranges::find(results_.metrics, name, &Metric::name);
          if (m != results_.metrics.end())
            line("  figure", m->id + " = " + number(m->value) + " " + m->unit);
          return "";
        });
  }

  void phase_files(const std::string& phase) {
    for (const std::string& path : run_.paths())
      if (path.starts_with("phases/" + phase + "/") && path.ends_with(".jsonl")) file(path);
  }

  void line(const std::string& name, const std::string& value) {
    if (!value.empty()) text_ += fmt::format("{:<10} {}\n", name, base::plain_text(value));
  }

  void file(const std::string& path) {
    line("file", path + (run_.has(path) ? "  sha256 " + run_.sha256(path) : "  is missing"));
  }

  void series(const Series& s) {
    line(s.id, s.title + ", " + s.unit + " over " + s.x);
    line("of", s.kind == "steps" ? "heartbeats of completed steps; thinned lines keep extremes"
                                 : "figures of the phase's table");
    for (const auto& one : s.lines)
      line("line", one.value("name", "") + ", " +
                       std::to_string(one.value("points", nlohmann::json()).size()) +
                       " points kept");
    phase_files(s.phase);
  }

  void metric(const Metric& m) {
    line(m.id, number(m.value) + " " + m.unit);
    if (m.lo || m.hi)
      line("interval", fmt::format("{} to {} {} at level {}, n = {}", number(m.lo), number(m.hi),
                                   m.unit, format_number(m.level), m.n));
    line("no value", m.null_reason);
    line("withheld", m.withheld);
    line("verdict", m.verdict);
    inputs(m);
    if (!m.details.empty()) line("details", m.details.dump());
  }

  void inputs(const Metric& m) {
    const RunFiles files = read_run_files(run_);
    for (const PlannedPhase& planned : files.plan.phases) {
      if (planned.id != m.phase) continue;
      for (const MetricSpec& spec : files.kinds.at(planned.kind).metrics)
        if (planned.id + "." + spec.name == m.name) formula(spec, files, planned);
    }
  }

  void formula(const MetricSpec& spec, const RunFiles& files, const PlannedPhase& planned) {
    line("says", spec.doc);
    line("formula", formula_of(spec));
    const Baselines baselines = read_baselines(run_, files.run.runbook, files.environment);
    const AbStages stages = ab_stages(run_, files, baselines, planned);
    const RawPhase raw = read_raw_phase(run_, files, stages.taken, read_phase_end(run_, planned));
    for (const GroupEvidence& group : raw.view.groups) {
      if (group.file.empty()) continue;
      file(group.file);
      line("unusable", group.unusable);
      numbers(spec, group);
    }
  }

  /// The raw numbers of one file that the figure may rest on: its metric lines, or its samples by
  /// case and series.
  void numbers(const MetricSpec& spec, const GroupEvidence& group) {
    const std::string& name = spec.source.empty() ? spec.name : spec.source;
    for (const MetricLine& m : group.metrics)
      if (m.name == name || m.case_id + "/" + m.name == name)
        line("  line", fmt::format("{}{} = {} {}", m.case_id.empty() ? "" : m.case_id + "/", m.name,
                                   number(m.value), m.unit));
    std::map<std::string, std::vector<double>> series;
    for (const SampleLine& s : group.samples)
      if (reads(spec, name, s))
        series[s.case_id + "/" + s.series + " [" + s.unit + "]"].push_back(s.value);
    for (const auto& [key, values] : series) line("  samples", sample_text(key, values));
    if (spec.estimator.starts_with("checks")) line("  checks", check_text(spec, group));
  }

  static bool reads(const MetricSpec& spec, const std::string& name, const SampleLine& s) {
    for (const std::string& arm : spec.arms)
      if (s.series == arm || s.series == spec.source + "." + arm) return true;
    return s.series == name || s.case_id + "/" + s.series == name;
  }

  static std::string sample_text(const std::string& key, const std::vector<double>& values) {
    std::string text = fmt::format("{}: n = {}:", key, values.size());
    for (size_t i = 0; i < std::min(values.size(), kShownSamples); ++i)
      text += " " + number(values[i]);
    return text + (values.size() > kShownSamples ? " ..." : "");
  }

  static std::string check_text(const MetricSpec& spec, const GroupEvidence& group) {
    int64_t run = 0;
    std::string failed;
    for (const CheckLine& check : group.checks) {
      if (!check.id.starts_with(spec.source)) continue;
      ++run;
      if (!check.ok) failed += "; failed: " + check.id + " " + check.code + " " + check.detail;
    }
    return fmt::format("{} run{}", run, failed);
  }

  void criterion(const CriterionResult& c) {
    line(c.id, std::string(enum_name(c.verdict)) + ": " + c.reason);
    line("requires", c.text);
    line("compares", fmt::format("{} {} {} {}", c.metric, c.op, number(c.threshold), c.unit));
    line("threshold", c.threshold_source);
    line("observed", number(c.observed) + " " + c.unit);
    line("margin", c.margin ? number(c.margin) + " " + c.unit : "");
    line("severity", std::string(enum_name(c.severity)));
    for (const Metric& m : results_.metrics)
      if (m.name == c.metric) metric(m);
  }

  void phase(const PhaseResult& p) {
    line(p.id, std::string(enum_name(p.status)) + (p.cause.empty() ? "" : " (" + p.cause + ")"));
    line("shows", p.title);
    line("ran", fmt::format("{}, {} s, {} attempts, {} of {} cases ok", p.run,
                            format_number(p.seconds), p.attempts, p.cases_ok, p.cases_planned));
    line("reason", p.reason);
    for (const CaseResult& c : p.cases)
      if (c.status != "ok") line("case", c.id + " " + c.status + ": " + c.reason);
    for (const Artifact& a : results_.artifacts)
      if (a.path.starts_with("phases/" + p.name + "/")) file(a.path);
    line("run again", "nsa-validate --runbook " + results_.run.runbook + " --only " + p.name);
  }

  void artifact(const Artifact& a) {
    line(a.id, a.path);
    line("recorded", fmt::format("sha256 {}, {} bytes, by {}", a.sha256, a.bytes, a.by));
    file(a.path);
  }

  void question(const Question& q) {
    line(q.id, q.question);
    for (const CriterionResult& c : results_.criteria)
      if (std::ranges::find(q.decided_by, c.id) != q.decided_by.end())
        line(c.severity == Severity::kInfo ? "informs" : "decides",
             c.id + " " + std::string(enum_name(c.verdict)) + ": " + c.reason);
    figures_of(q.says);
  }

  void deviation(const Deviation& d) {
    line(d.id, d.what);
    line("why", d.why);
  }

  void finding(const Finding& f) {
    line(f.id, f.code + " (" + std::string(enum_name(f.priority)) + ")");
    line("symptom", f.symptom);
    line("cause", f.cause);
    line("action", f.action);
    line("fact", f.fact + (f.fact == id_ ? "" : "; explain " + f.fact));
  }

  const RunFolder& run_;
  const Results results_;
  const std::string id_;
  std::string text_;
  std::vector<std::string> ids_;
};

}  // namespace

std::string explain(const RunFolder& run, const std::string& id) {
  return Explainer(run, id).text();
}

}  // namespace harness

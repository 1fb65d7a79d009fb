#pragma once
#include <string>

#include "harness/results/results.h"

/// Small results for the tests of this folder.
namespace reports::testing_data {

inline harness::CriterionResult criterion(
    const std::string& id, harness::CriterionVerdict verdict,
    harness::Severity severity = harness::Severity::kBlocker) {
  harness::CriterionResult c;
  c.id = id;
  c.phase = "p";
  c.text = "text of " + id;
  c.metric = "p.x_count";
  c.op = ">=";
  c.threshold = 1;
  c.unit = "count";
  c.verdict = verdict;
  c.severity = severity;
  c.reason = "reason of " + id;
  return c;
}

inline harness::Metric metric(const std::string& name, double value) {
  harness::Metric m;
  m.id = "M-" + name;
  m.name = name;
  m.phase = "p";
  m.unit = "count";
  m.value = value;
  m.n = 1;
  m.method = "exact";
  m.samples = {"phases/p/g01.jsonl"};
  return m;
}

inline harness::Metric comparison(const std::string& name, const std::string& verdict,
                                  double speedup) {
  harness::Metric m = metric(name, speedup);
  m.unit = "ratio";
  m.method = "paired_ratio";
  m.level = .99;
  m.verdict = verdict;
  m.lo = m.lo95 = speedup * .99;
  m.hi = m.hi95 = speedup * 1.01;
  m.details = {{"baseline", {{"arm", "off"}, {"median", 2}}},
               {"candidate", {{"arm", "on"}, {"median", 1}}},
               {"time_unit", "ms"}};
  return m;
}

/// One phase, one metric, one criterion that passes; GO.
inline harness::Results go() {
  harness::Results r;
  r.run.id = "smoke-1";
  r.run.runbook = "smoke";
  r.run.runbook_title = "Smoke";
  r.run.started = "2026-01-02T03:04:05Z";
  harness::PhaseResult phase;
  phase.id = "P-p";
  phase.name = "p";
  phase.run = "nsa-worker:p";
  phase.status = harness::StepStatus::kCompleted;
  phase.attempts = 1;
  phase.seconds = 1.5;
  r.phases = {phase};
  r.metrics = {metric("p.x_count", 3)};
  r.criteria = {criterion("C-x", harness::CriterionVerdict::kPass)};
  r.verdict.word = "GO";
  r.verdict.exit = 0;
  r.verdict.rule = "every blocker and major criterion PASSes";
  r.verdict.weakest = "C-x PASS";
  r.verdict.scope = "this machine only";
  return r;
}

/// Results whose parts are each `count` long.
struct Sizes {
  int open = 0, passed = 0, comparisons = 0, findings = 0, phases = 0, history = 0;
};

inline harness::Results sized(const Sizes& sizes) {
  harness::Results r = go();
  r.criteria.clear();
  for (int i = 0; i < sizes.open; ++i)
    r.criteria.push_back(criterion("C-open" + std::to_string(i), harness::CriterionVerdict::kFail));
  for (int i = 0; i < sizes.passed; ++i)
    r.criteria.push_back(criterion("C-pass" + std::to_string(i), harness::CriterionVerdict::kPass));
  for (int i = 0; i < sizes.comparisons; ++i)
    r.metrics.push_back(comparison("p.ab" + std::to_string(i) + ".speedup_ratio", "FASTER", 2));
  for (int i = 0; i < sizes.findings; ++i)
    r.findings.push_back({"F-" + std::to_string(i), "HANG", "s", "P-p", "c", "a", {}});
  for (int i = 0; i < sizes.phases; ++i) r.phases.push_back(r.phases[0]);
  for (int i = 0; i < sizes.history; ++i)
    r.history.push_back({{"metric", "p.h"}, {"value", i}, {"unit", "ms"}, {"source", "then"}});
  return r;
}

/// From "## HEADING" of a Markdown report to the next heading of that level; empty: there is none.
inline std::string section(const std::string& text, const std::string& heading) {
  const size_t at = text.find("## " + heading + "\n");
  return at == std::string::npos ? "" : text.substr(at, text.find("\n## ", at + 1) - at);
}

}  // namespace reports::testing_data

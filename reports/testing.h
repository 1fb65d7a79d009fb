#pragma once
#include <string>

#include "harness/results/results.h"

/// Small results for the tests of this room.
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

}  // namespace reports::testing_data

#include <pugixml.hpp>
#include <set>
#include <sstream>
#include <string_view>

#include "harness/results/number.h"
#include "reports/escape.h"
#include "reports/render.h"

/// JUnit XML: a suite is a step, a case is a criterion. The first case of a suite is the step
/// itself, and a last suite holds the verdict, so that the file is red exactly when the exit code
/// is not 0 or a criterion fails.
namespace reports {
namespace {

using harness::CriterionResult;
using harness::CriterionVerdict;
using harness::PhaseResult;
using harness::StepStatus;

struct Counts {
  int tests = 0, failures = 0, errors = 0, skipped = 0;
  void add(const Counts& other) {
    tests += other.tests;
    failures += other.failures;
    errors += other.errors;
    skipped += other.skipped;
  }
};

std::string seconds_text(double seconds) { return harness::number_detail::fixed(seconds, 3); }

void set(pugi::xml_node node, const char* name, std::string_view value) {
  node.append_attribute(name).set_value(plain(value, 2000).c_str());
}

void set_counts(pugi::xml_node node, const Counts& counts) {
  node.append_attribute("tests").set_value(counts.tests);
  node.append_attribute("failures").set_value(counts.failures);
  node.append_attribute("errors").set_value(counts.errors);
  node.append_attribute("skipped").set_value(counts.skipped);
}

/// Adds <failure>, <error> or <skipped> and counts it.
void outcome(pugi::xml_node test, const char* kind, const std::string& message,
             std::string_view type, Counts& counts) {
  pugi::xml_node node = test.append_child(kind);
  set(node, "message", message);
  if (!type.empty()) set(node, "type", type);
  const std::string_view name = kind;
  if (name == "failure") ++counts.failures;
  if (name == "error") ++counts.errors;
  if (name == "skipped") ++counts.skipped;
}

pugi::xml_node add_case(pugi::xml_node suite, const std::string& suite_name,
                        const std::string& name, Counts& counts) {
  pugi::xml_node test = suite.append_child("testcase");
  set(test, "classname", suite_name);
  set(test, "name", name);
  ++counts.tests;
  return test;
}

void add_step_case(pugi::xml_node suite, const std::string& suite_name, const PhaseResult& phase,
                   Counts& counts) {
  pugi::xml_node test = add_case(suite, suite_name, phase.id + " " + phase.title, counts);
  test.append_attribute("time").set_value(seconds_text(phase.seconds).c_str());
  const std::string message = std::string(harness::enum_name(phase.status)) +
                              (phase.cause.empty() ? "" : " (" + phase.cause + ")") + ": " +
                              phase.reason;
  if (phase.status == StepStatus::kFailed)
    outcome(test, "error", message, phase.cause, counts);
  else if (phase.status == StepStatus::kPartial)
    outcome(test, "error", message, "PARTIAL", counts);
  else if (phase.status != StepStatus::kCompleted)
    outcome(test, "skipped", message, "", counts);
}

void add_criterion_case(pugi::xml_node suite, const std::string& suite_name,
                        const CriterionResult& c, bool step_ran, bool strict, Counts& counts) {
  pugi::xml_node test = add_case(suite, suite_name, c.id + " " + c.text, counts);
  if (c.verdict == CriterionVerdict::kPass) return;
  const std::string word(harness::enum_name(c.verdict));
  const std::string message = word + ": " + c.reason;
  if (c.severity == harness::Severity::kInfo)
    outcome(test, "skipped", message + " (information only)", "", counts);
  else if (c.verdict == CriterionVerdict::kFail)
    outcome(test, "failure", message, harness::enum_name(c.severity), counts);
  else if (strict && step_ran)
    outcome(test, "error", message,
            c.verdict == CriterionVerdict::kInconclusive ? "inconclusive" : "not_evaluated",
            counts);
  else
    outcome(test, "skipped", message, "", counts);
}

/// Figures that a criterion of the step judges, as properties: value, or why there is none.
void add_properties(pugi::xml_node suite, const Model& model, const PhaseResult& phase) {
  std::set<std::string_view> judged;
  for (const CriterionResult& c : model.results.criteria)
    if (c.phase == phase.name) judged.insert(c.metric);
  pugi::xml_node properties = suite.append_child("properties");
  for (const harness::Metric& m : model.results.metrics) {
    if (m.phase != phase.name || !judged.contains(m.name)) continue;
    pugi::xml_node property = properties.append_child("property");
    set(property, "name", m.id);
    set(property, "value",
        m.value ? harness::format_value(*m.value, m.unit)
                : "none: " + (m.withheld.empty() ? m.null_reason : m.withheld));
  }
}

Counts add_suite(pugi::xml_node root, const Model& model, const PhaseResult& phase) {
  const bool strict = model.results.verdict.gate != "advisory";
  const bool ran = phase.status != StepStatus::kDeferred && phase.status != StepStatus::kNotRun;
  const std::string name = model.results.run.runbook + "." + phase.name;
  pugi::xml_node suite = root.append_child("testsuite");
  set(suite, "name", phase.name);
  Counts counts;
  add_properties(suite, model, phase);
  add_step_case(suite, name, phase, counts);
  for (const CriterionResult& c : model.results.criteria)
    if (c.phase == phase.name) add_criterion_case(suite, name, c, ran, strict, counts);
  set_counts(suite, counts);
  suite.append_attribute("time").set_value(seconds_text(phase.seconds).c_str());
  set(suite, "timestamp", model.results.run.started);
  return counts;
}

Counts add_verdict_suite(pugi::xml_node root, const Model& model) {
  const harness::Verdict& v = model.results.verdict;
  pugi::xml_node suite = root.append_child("testsuite");
  set(suite, "name", "verdict");
  Counts counts;
  pugi::xml_node test = add_case(suite, model.results.run.runbook, "verdict", counts);
  const std::string message = v.word + " (exit code " + std::to_string(v.exit) + "): " + v.rule;
  if (v.exit == 1)
    outcome(test, "failure", message, v.word, counts);
  else if (v.exit != 0)
    outcome(test, "error", message, v.word, counts);
  pugi::xml_node out = test.append_child("system-out");
  out.text().set(plain(message + " Weakest: " + v.weakest + " Scope: " + v.scope, 4000).c_str());
  set_counts(suite, counts);
  return counts;
}

}  // namespace

std::string render_junit_xml(const Model& model) {
  pugi::xml_document document;
  pugi::xml_node declaration = document.append_child(pugi::node_declaration);
  declaration.append_attribute("version").set_value("1.0");
  declaration.append_attribute("encoding").set_value("UTF-8");
  pugi::xml_node root = document.append_child("testsuites");
  set(root, "name", model.results.run.runbook);
  Counts total;
  double seconds = 0;
  for (const PhaseResult& phase : model.results.phases) {
    total.add(add_suite(root, model, phase));
    seconds += phase.seconds;
  }
  total.add(add_verdict_suite(root, model));
  set_counts(root, total);
  root.append_attribute("time").set_value(seconds_text(seconds).c_str());
  std::ostringstream out;
  document.save(out, "  ", pugi::format_default, pugi::encoding_utf8);
  return out.str();
}

}  // namespace reports

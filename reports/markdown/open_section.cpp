// What failed, is open or deviates; findings; what changed since the revision before.
#include <algorithm>
#include <map>

#include "harness/results/missing_hardware.h"
#include "reports/answers.h"
#include "reports/escape.h"
#include "reports/markdown/sections.h"
#include "reports/markdown/table.h"

namespace reports {

using harness::CriterionResult;
using harness::CriterionVerdict;
using harness::PhaseResult;
using harness::Severity;
using harness::StepStatus;

namespace {

constexpr std::string_view kRevisions = "revisions";  // table of what changed between revisions

constexpr const char* kBeyondSize = "none: outside the scope of this verdict";

/// PARTIAL is no verdict on the runbook; what was found would weigh in one.
std::string conditional(const Model& model) {
  const bool partial = model.results.verdict.word == "PARTIAL";
  return std::string(partial ? "would cap" : "caps") + " the verdict at CONDITIONAL GO";
}

bool phase_is(const Model& model, const std::string& phase, bool (*state)(const PhaseResult&)) {
  const PhaseResult* found = model.phase(phase);
  return found != nullptr && state(*found);
}

std::string consequence(const Model& model, const CriterionResult& c) {
  if (c.severity == Severity::kInfo) return "none: for information";
  if (phase_is(model, c.phase, harness::is_beyond_size)) return kBeyondSize;
  if (c.severity == Severity::kMajor || phase_is(model, c.phase, harness::lacks_hardware))
    return conditional(model);
  return c.verdict == CriterionVerdict::kFail ? "NO-GO" : "leaves the verdict undecided";
}

/// Criteria of one step with one verdict, consequence and, where nothing was measured, one cause:
/// one row, however many they are.
struct Group {
  const CriterionResult* first;
  size_t count = 0;
};

std::vector<Group> groups(const Model& model) {
  std::vector<Group> all;
  std::map<std::string, size_t> known;
  for (const CriterionResult* c : model.criteria) {
    if (c->verdict == CriterionVerdict::kPass) continue;
    const bool together = c->verdict == CriterionVerdict::kNotEvaluated;
    const std::string key =
        together ? c->phase + "\n" + consequence(model, *c) + "\n" + c->reason : c->id;
    const auto [at, fresh] = known.emplace(key, all.size());
    if (fresh) all.push_back({c});
    ++all[at->second].count;
  }
  return all;
}

std::string required_text(harness::Required required) {
  switch (required) {
    case harness::Required::kAlways:
      return "the step is required";
    case harness::Required::kIfHardware:
      return "required where the hardware is";
    case harness::Required::kBySize:
      return "required on machines of its size";
    case harness::Required::kNo:
      break;
  }
  return "none: the step is not required";
}

/// What was changed on purpose, or only that steps were left out, which have rows of their own,
/// too.
void add_deviations(const Model& model, bool of_left_out, Table& table) {
  for (const harness::Deviation& d : model.results.deviations)
    if (d.id.starts_with("D-skip.") == of_left_out)
      table.add({"deviation " + code(d.id),
                 escape(d.what) + (d.why.empty() ? "" : ": " + escape(d.why)),
                 of_left_out ? "makes the verdict PARTIAL" : conditional(model)});
}

void add_rows(const Model& model, Table& table) {
  add_deviations(model, /*of_left_out=*/false, table);
  for (const Group& group : groups(model)) {
    const CriterionResult& c = *group.first;
    std::string what = code(c.id);
    if (group.count > 1)
      what += " and " + std::to_string(group.count - 1) + " more of " + code("P-" + c.phase);
    else if (!c.text.empty())
      what += ", " + escape(c.text, 160);
    table.add({what + " (" + std::string(harness::enum_name(c.severity)) + ")",
               status_text(c.verdict) + ": " + escape(c.reason, 400), consequence(model, c)});
  }
  for (const PhaseResult& p : model.results.phases)
    if (p.status != StepStatus::kCompleted)
      table.add({"step " + code(p.id),
                 status_text(p.status) + (p.cause.empty() ? "" : " " + code(p.cause)) +
                     (p.reason.empty() ? "" : ": " + escape(p.reason, 400)),
                 harness::lacks_hardware(p)   ? conditional(model)
                 : harness::is_beyond_size(p) ? kBeyondSize
                                              : required_text(p.required)});
  add_deviations(model, /*of_left_out=*/true, table);
}

}  // namespace

std::string open_section(const Model& model, size_t max_rows) {
  Table table({"what", "how", "consequence"});
  add_rows(model, table);
  const std::string out = "## Open, failed, deviating\n\n";
  if (table.empty()) return out + "Nothing: every criterion passes, every step was completed.\n\n";
  return out + table.markdown(max_rows);
}

std::string findings_section(const Model& model, size_t max_rows) {
  std::vector<const harness::Finding*> findings;
  for (const auto& f : model.results.findings) findings.push_back(&f);
  std::ranges::stable_sort(findings, {},
                           [](const auto* f) { return static_cast<int>(f->priority); });
  Table table({"priority", "finding", "symptom", "evidence", "likely cause", "what to do"});
  for (const harness::Finding* f : findings)
    table.add({"**" + std::string(harness::enum_name(f->priority)) + "**",
               code(f->code) + " " + code(f->id), escape(f->symptom), code(f->fact),
               escape(f->cause), escape(f->action)});
  return "## Findings\n\n" + (table.empty() ? "None.\n\n" : table.markdown(max_rows));
}

std::string revisions_section(const Model& model) {
  if (!model.results.tables.is_array()) return "";
  for (const nlohmann::json& table : model.results.tables)
    if (table.is_object() && table.contains("id") && table["id"] == kRevisions)
      return "## Revisions\n\nThis report supersedes the run whose ledger head is " +
             code(model.results.run.supersedes) + ".\n\n" + table_markdown(table);
  return "";
}

}  // namespace reports

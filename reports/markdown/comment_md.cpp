#include <algorithm>

#include "reports/escape.h"
#include "reports/markdown/sections.h"
#include "reports/render.h"

/// One pull-request comment, found again by its marker and updated in place: the verdict, what did
/// not pass, and everything else folded away.
namespace reports {
namespace {

constexpr size_t kOpenRows = 6;
constexpr size_t kCommentBudget =
    60'000;  // bytes; a comment of more than 65,536 characters is refused
constexpr size_t kDetailRows[] = {60, 25, 8, 0};  // of each kind, as many as fit

std::string marker(const Model& model) {
  std::string name;
  for (const char c : model.results.run.runbook)
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_')
      name += c;
  return "<!-- nsa-validate:" + name + " -->\n";
}

std::string open_criteria(const Model& model) {
  std::string out;
  size_t open = 0;
  for (const harness::CriterionResult* c : model.criteria) {
    if (c->verdict == harness::CriterionVerdict::kPass || open++ >= kOpenRows) continue;
    out += "- " + status_text(c->verdict) + " " + code(c->id) + " (" +
           std::string(harness::enum_name(c->severity)) + "): " + escape(c->reason, 200) + "\n";
  }
  if (open > kOpenRows) out += "- and " + std::to_string(open - kOpenRows) + " more\n";
  return out.empty() ? "- Every criterion PASSes.\n" : out;
}

/// Criteria and steps, folded away, at most `rows` of each kind.
std::string details(const Model& model, size_t rows) {
  return "\n<details><summary>Criteria and steps</summary>\n\n" +
         criteria_section(model, rows, rows) + steps_section(model, rows) + "</details>\n";
}

}  // namespace

std::string render_comment_md(const Model& complete) {
  Model model = complete;
  model.links_files = false;
  const harness::Results& r = model.results;
  std::string out = marker(model) + runbook_line(model);
  if (model.advisory_changed_exit())
    out += "**The advisory gate turned the exit code into 0.**\n\n";
  out += "### " + status_text(r.verdict) + " — " + escape(r.run.runbook) + "\n\n";
  out += "- **Rule that fired:** " + escape(r.verdict.rule, 400) + "\n";
  out += "- **Weakest point:** " + escape(r.verdict.weakest, 400) + "\n";
  out += "- **Scope:** " + escape(r.verdict.scope, 400) + "\n";
  out +=
      "- **Criteria:** " + criteria_counts(model) + ". **Steps:** " + steps_counts(model) + ".\n";
  out += open_criteria(model);
  for (const size_t rows : kDetailRows)
    if (const std::string folded = details(model, rows);
        out.size() + folded.size() < kCommentBudget)
      return out + folded;
  return out + "\nCriteria and steps did not fit; report.md has them.\n";
}

}  // namespace reports

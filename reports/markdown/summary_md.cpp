#include "reports/markdown/sections.h"
#include "reports/render.h"

/// The first screen and what is open, for a step summary: at most 60 lines, below 60 kB.
namespace reports {
namespace {

constexpr size_t kBudget = 60'000;  // bytes; step summaries and comments are refused above

/// Last resort: whole lines from the start.
std::string cut(const std::string& text) {
  if (text.size() < kBudget) return text;
  const std::string note = "\nThe rest did not fit; report.md has it.\n";
  const size_t end = text.rfind('\n', kBudget - note.size() - 1);
  return (end == std::string::npos ? "" : text.substr(0, end + 1)) + note;
}

}  // namespace

std::string render_summary_md(const Model& complete) {
  constexpr size_t kQuestions = 16, kSteps = 5, kOpen = 8;
  Model model = complete;
  model.links_files = false;
  return cut(first_screen(model) + answers_section(model, kQuestions) +
             next_steps_section(model, kSteps) + open_section(model, kOpen) +
             "Criteria, results of each step, settings, artifacts and commands: report.md.\n");
}

}  // namespace reports

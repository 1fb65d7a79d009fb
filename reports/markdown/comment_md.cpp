#include <algorithm>

#include "harness/results/number.h"
#include "reports/answers.h"
#include "reports/escape.h"
#include "reports/markdown/sections.h"
#include "reports/render.h"

/// One pull-request comment, found again by its marker and updated in place: the verdict, what did
/// not pass, and everything else folded away.
namespace reports {
namespace {

constexpr int64_t kQuestions = 10;
constexpr size_t kOpenPoints = 3;
constexpr size_t kSteps = 2;
constexpr int64_t kMostLines = 40;
constexpr size_t kCommentBudget =
    60'000;  // bytes; a comment of more than 65,536 characters is refused

std::string marker(const Model& model) {
  std::string name;
  for (const char c : model.results.run.runbook)
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_')
      name += c;
  return "<!-- nsa-validate:" + name + " -->\n";
}

/// What a reviewer, who has only the comment, needs to trust or repeat it.
std::string measured_on(const Model& model) {
  const std::string commit = commit_of(model.results.environment);
  return "Measured on " + escape(machine_text(model.results.environment)) + "; commit " +
         (commit.empty() ? "not known" : code(commit.substr(0, 12))) + "; " +
         harness::format_duration(run_seconds(model)) + "; run " + code(model.results.run.id) + ".";
}

int64_t lines(const std::string& text) { return std::ranges::count(text, '\n'); }

}  // namespace

std::string render_comment_md(const Model& complete) {
  Model model = complete;
  model.links_files = false;
  const std::string top = marker(model) + notices(model) + "### " + title_line(model) + "\n\n" +
                          answer_paragraph(model) + "\n\n**Do now:** " + do_now(model) + "\n\n" +
                          measured_on(model) + "\n\n";
  const std::string rest = open_section(model, kOpenPoints) + next_steps_section(model, kSteps);
  const auto with_answers = [&](size_t rows) {
    return top + folded("Answers, what is open, what to do", answers_section(model, rows) + rest);
  };
  std::string out = with_answers(kQuestions);
  if (const int64_t over = lines(out) - kMostLines; over > 0)  // and the two lines that tell of it
    out = with_answers(static_cast<size_t>(std::max<int64_t>(1, kQuestions - over - 2)));
  return out.size() < kCommentBudget ? out : top + "The rest did not fit; report.md has it.\n";
}

}  // namespace reports

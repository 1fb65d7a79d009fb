#include <algorithm>

#include "reports/answers.h"
#include "reports/escape.h"
#include "reports/markdown/sections.h"
#include "reports/render.h"

/// One pull-request comment, found again by its marker and updated in place: the verdict, what did
/// not pass, and everything else folded away.
namespace reports {
namespace {

constexpr size_t kQuestions = 10;
constexpr size_t kOpenPoints = 4;
constexpr size_t kCommentBudget =
    60'000;  // bytes; a comment of more than 65,536 characters is refused

std::string marker(const Model& model) {
  std::string name;
  for (const char c : model.results.run.runbook)
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_')
      name += c;
  return "<!-- nsa-validate:" + name + " -->\n";
}

}  // namespace

std::string render_comment_md(const Model& complete) {
  Model model = complete;
  model.links_files = false;
  const std::string top = marker(model) + notices(model) + "### " + title_line(model) + "\n\n" +
                          answer_paragraph(model) + "\n\n**Do now:** " + do_now(model) + "\n\n";
  const std::string out =
      top + folded("Answers, and what is open",
                   answers_section(model, kQuestions) + open_section(model, kOpenPoints));
  return out.size() < kCommentBudget ? out : top + "The rest did not fit; report.md has it.\n";
}

}  // namespace reports

#include "harness/evidence/derive/runbook_words.h"

#include <string>
#include <string_view>
#include <vector>

#include "harness/results/sentence.h"

namespace harness {
namespace {

std::string with_name(const std::string& command, const std::string& runbook) {
  const auto as_is = [](std::string_view text) { return std::string(text); };
  return put_together(command, as_is, [&](std::string_view) { return runbook; });
}

}  // namespace

void add_runbook_words(const Runbook& runbook, Results& results) {
  std::vector<std::string> criteria;
  for (const PhaseSpec& phase : runbook.phases)
    for (const CriterionSpec& criterion : phase.criteria) criteria.push_back(criterion.id);
  results.answer = runbook.answer;
  for (Sentence& sentence : results.answer) sentence.when = named_ids(sentence.when, criteria);
  results.questions = runbook.questions;
  for (Question& question : results.questions)
    question.decided_by = named_ids(question.decided_by, criteria);
  results.next_steps = runbook.next_steps;
  for (NextStep& step : results.next_steps) {
    step.unless = named_ids(step.unless, criteria);
    step.command = with_name(step.command, runbook.name);
  }
}

}  // namespace harness

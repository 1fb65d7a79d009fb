#include "harness/runbook/checks/check_answers.h"

#include <set>

#include "harness/results/sentence.h"
#include "harness/runbook/checks/check_at.h"
#include "harness/runbook/checks/names.h"
#include "harness/schema/parse/nearest.h"

namespace harness {
namespace {

using nlohmann::json;

class AnswerChecker {
 public:
  AnswerChecker(const Source& source, const Runbook& runbook,
                const std::vector<std::string>& metrics)
      : source_(source), runbook_(runbook), metrics_(metrics) {
    for (const PhaseSpec& phase : runbook.phases)
      for (const CriterionSpec& criterion : phase.criteria) criteria_.push_back(criterion.id);
  }

  void check(const json& document) {
    require(source_, at(document, "goals"), runbook_.goals.empty(),
            "goals have no criteria and are not read any more; write questions, each with "
            "decided_by");
    for (size_t i = 0; i < runbook_.questions.size(); ++i)
      check_question(document.at("questions")[i], runbook_.questions[i]);
    for (size_t i = 0; i < runbook_.answer.size(); ++i)
      check_sentence(document.at("answer")[i], runbook_.answer[i]);
    for (size_t i = 0; i < runbook_.next_steps.size(); ++i)
      check_next_step(document.at("next_steps")[i], runbook_.next_steps[i]);
    if (runbook_.questions.empty()) return;
    require(source_, document, !runbook_.answer.empty(),
            "answer is missing: the sentences that the report begins with");
    check_all_asked(at(document, "questions"));
  }

 private:
  void check_question(const json& place, const Question& question) {
    const std::string what = "question " + in_quotes(question.id);
    const std::string& id = question.id;
    require(source_, at(place, "id"), id.starts_with("G-") && is_criterion_id("C-" + id.substr(2)),
            what + ": the id must be G- and lower case letters, digits, '.', '_' or '-'");
    require(source_, at(place, "id"), asked_.insert(id).second, what + " is given twice");
    require(source_, at(place, "question"), question.question.ends_with('?'),
            what + ": the question must end with '?', got " + in_quotes(question.question));
    require(source_, at(place, "decided_by"), !question.decided_by.empty(),
            what + ": decided_by is empty; a question without a criterion has no answer");
    check_ids(at(place, "decided_by"), what + ": decided_by", question.decided_by);
    check_figures(at(place, "says"), what + ": says", question.says);
  }

  void check_sentence(const json& place, const Sentence& sentence) {
    check_figures(at(place, "text"), "answer", sentence.text);
    check_figures(at(place, "otherwise"), "answer", sentence.otherwise);
    check_ids(at(place, "when"), "answer: when", sentence.when);
    require(source_, place, sentence.otherwise.empty() || !sentence.when.empty(),
            "answer: otherwise is never used where when is empty");
  }

  void check_next_step(const json& place, const NextStep& step) {
    check_ids(at(place, "unless"), "next step: unless", step.unless);
    const auto none = [](std::string_view) { return ""; };
    put_together(step.command, none, [&](std::string_view name) {
      require(source_, at(place, "command"), name == kRunbookName,
              "next step: command has " + in_quotes("{" + std::string(name) + "}") +
                  "; only {runbook}, the name of the runbook that ran, is known");
      return "";
    });
  }

  void check_ids(const json& place, const std::string& what,
                 const std::vector<std::string>& patterns) {
    for (const std::string& pattern : patterns)
      require(source_, place, !named_ids({pattern}, criteria_).empty(),
              what + " names " + in_quotes(pattern) + ", and no criterion is called so" +
                  did_you_mean(pattern, criteria_));
  }

  void check_figures(const json& place, const std::string& what, const std::string& text) {
    const auto none = [](std::string_view) { return ""; };
    put_together(text, none, [&](std::string_view name) {
      const std::string metric(name);
      require(source_, place, contains(metrics_, metric),
              what + ": no phase declares the metric " + in_quotes(metric) +
                  did_you_mean(metric, metrics_));
      return "";
    });
  }

  void check_all_asked(const json& place) {
    for (const PhaseSpec& phase : runbook_.phases)
      for (const CriterionSpec& criterion : phase.criteria) {
        const bool asked = std::ranges::any_of(runbook_.questions, [&](const Question& question) {
          return !named_ids(question.decided_by, {criterion.id}).empty();
        });
        require(source_, place, asked || criterion.severity == Severity::kInfo,
                "criterion " + in_quotes(criterion.id) +
                    " decides the verdict and belongs to no question; name it in decided_by");
      }
  }

  const Source& source_;
  const Runbook& runbook_;
  const std::vector<std::string>& metrics_;
  std::vector<std::string> criteria_;
  std::set<std::string> asked_;
};

}  // namespace

void check_answers(const Source& source, const json& document, const Runbook& runbook,
                   const std::vector<std::string>& metrics) {
  AnswerChecker(source, runbook, metrics).check(document);
}

}  // namespace harness

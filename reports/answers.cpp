#include "reports/answers.h"

#include <algorithm>
#include <cmath>

#include "harness/results/number.h"
#include "harness/results/plain_figure.h"
#include "harness/results/sentence.h"
#include "reports/escape.h"

namespace reports {

using harness::CriterionResult;
using harness::CriterionVerdict;
using harness::Metric;
using harness::Severity;

namespace {

std::vector<const CriterionResult*> deciding(std::vector<const CriterionResult*> all) {
  const bool any = std::ranges::any_of(all, [](auto* c) { return c->severity != Severity::kInfo; });
  if (any) std::erase_if(all, [](auto* c) { return c->severity == Severity::kInfo; });
  return all;
}

Answer answer_of(const std::vector<const CriterionResult*>& criteria) {
  const auto count = [&](CriterionVerdict verdict) {
    return static_cast<size_t>(
        std::ranges::count_if(criteria, [&](auto* c) { return c->verdict == verdict; }));
  };
  if (count(CriterionVerdict::kFail) > 0) return Answer::kNo;
  if (count(CriterionVerdict::kNotEvaluated) == criteria.size()) return Answer::kNotRun;
  return count(CriterionVerdict::kPass) == criteria.size() ? Answer::kYes : Answer::kNotDecided;
}

/// What did not pass before what did; then blockers first, then the least room.
const CriterionResult* decisive(const std::vector<const CriterionResult*>& criteria) {
  const auto key = [](const CriterionResult* c) {
    const bool pass = c->verdict == CriterionVerdict::kPass;
    const int rank = c->verdict == CriterionVerdict::kFail           ? 0
                     : c->verdict == CriterionVerdict::kInconclusive ? 1
                                                                     : 2;
    return std::tuple(pass ? 3 : rank, static_cast<int>(pass ? Severity::kBlocker : c->severity),
                      relative_room(*c));
  };
  const auto found = std::ranges::min_element(criteria, {}, key);
  return found == criteria.end() ? nullptr : *found;
}

Answered of(std::string id, std::string question, std::vector<const CriterionResult*> criteria,
            std::string sentence) {
  criteria = deciding(std::move(criteria));
  return {.id = std::move(id),
          .question = std::move(question),
          .answer = answer_of(criteria),
          .criteria = criteria,
          .decisive = decisive(criteria),
          .says = std::move(sentence)};
}

const Metric* measured(const Model& model, std::string_view name) {
  const Metric* metric = model.metric(name);
  return metric != nullptr && metric->value && metric->withheld.empty() ? metric : nullptr;
}

constexpr const char* kNotMeasured = "(not measured)";

std::string figure_in_sentence(const Model& model, std::string_view name) {
  const Metric* metric = measured(model, name);
  return metric == nullptr ? kNotMeasured : "**" + figure_text(*metric) + "**";
}

std::string plain_figure_of(const Model& model, std::string_view name) {
  const Metric* m = measured(model, name);
  if (m == nullptr) return kNotMeasured;
  return harness::plain_figure(m->value.value_or(NAN), m->unit, is_multiple(*m), m->lo, m->hi);
}

std::vector<std::string_view> steps_left_out(const Model& model) {
  std::vector<std::string_view> names;
  for (const harness::PhaseResult& phase : model.results.phases)
    if (phase.cause == harness::kCauseSkipped) names.push_back(phase.name);
  return names;
}

/// All criteria that prove the sentence are of steps that were left out.
bool was_left_out(const Model& model, const harness::Sentence& sentence) {
  const std::vector<std::string_view> steps = steps_left_out(model);
  const auto of_such = [&](const std::string& id) {
    return std::ranges::any_of(model.results.criteria, [&](const CriterionResult& c) {
      return c.id == id && std::ranges::find(steps, c.phase) != steps.end();
    });
  };
  return !sentence.when.empty() && std::ranges::all_of(sentence.when, of_such);
}

/// Each sentence of the answer, as its criteria allow it, and how many steps it is silent about.
std::vector<std::string> sentences_that_hold(const Model& model) {
  std::vector<std::string> held;
  for (const harness::Sentence& one : model.results.answer) {
    const std::string& text = all_pass(model, one.when) ? one.text : one.otherwise;
    if (!text.empty() && !was_left_out(model, one)) held.push_back(text);
  }
  const size_t count = steps_left_out(model).size(), all = model.results.phases.size();
  if (count > 0 && !model.results.answer.empty())
    held.push_back("Left out: " + std::to_string(count) + " of " + std::to_string(all) +
                   " steps; this answer does not cover them.");
  return held;
}

std::string counted_sentence(const Model& model) {
  const auto& all = model.results.criteria;
  const auto count = [&](CriterionVerdict verdict) {
    return std::to_string(std::ranges::count_if(all, [&](const CriterionResult& c) {
      return c.severity != Severity::kInfo && c.verdict == verdict;
    }));
  };
  return "Of the criteria that decide, " + count(CriterionVerdict::kPass) + " PASS, " +
         count(CriterionVerdict::kFail) + " FAIL, " + count(CriterionVerdict::kInconclusive) +
         " are INCONCLUSIVE and " + count(CriterionVerdict::kNotEvaluated) +
         " were NOT_EVALUATED. The runbook has no sentences of its own.";
}

}  // namespace

bool all_pass(const Model& model, const std::vector<std::string>& criteria) {
  return std::ranges::all_of(criteria, [&](const std::string& id) {
    return std::ranges::any_of(model.results.criteria, [&](const CriterionResult& c) {
      return c.id == id && c.verdict == CriterionVerdict::kPass;
    });
  });
}

std::vector<Answered> answered(const Model& model) {
  std::vector<Answered> all;
  for (const harness::Question& question : model.results.questions) {
    std::vector<const CriterionResult*> criteria;
    for (const CriterionResult& c : model.results.criteria)
      if (std::ranges::find(question.decided_by, c.id) != question.decided_by.end())
        criteria.push_back(&c);
    all.push_back(of(question.id, question.question, std::move(criteria), question.says));
  }
  if (!all.empty()) return all;
  for (const harness::PhaseResult& phase : model.results.phases)
    if (auto criteria = model.criteria_of(phase.name); !criteria.empty())
      all.push_back(
          of(phase.id, phase.title.empty() ? phase.name : phase.title, std::move(criteria), ""));
  return all;
}

std::string status_text(Answer answer) {
  switch (answer) {
    case Answer::kYes:
      return "✅ yes";
    case Answer::kNo:
      return "❌ no";
    case Answer::kNotDecided:
      return "❓ not decided";
    case Answer::kNotRun:
      break;
  }
  return "⬜ not run";
}

std::string sentence(const Model& model, std::string_view text) {
  return harness::put_together(
      text, [](std::string_view words) { return escape(words, 2000); },
      [&](std::string_view name) { return figure_in_sentence(model, name); });
}

std::string answer_text(const Model& model) {
  std::string out;
  for (const std::string& text : sentences_that_hold(model))
    out += (out.empty() ? "" : " ") +
           harness::put_together(
               text, [](std::string_view words) { return plain(words, 2000); },
               [&](std::string_view name) { return plain_figure_of(model, name); });
  return out;
}

std::string answer_paragraph(const Model& model) {
  std::string out;
  for (const std::string& text : sentences_that_hold(model))
    out += (out.empty() ? "" : " ") + sentence(model, text);
  return out.empty() ? counted_sentence(model) : out;
}

double relative_room(const CriterionResult& c) {
  if (!c.margin || !c.threshold || c.op == "==" || *c.threshold == 0 || c.unit == "bool" ||
      c.unit == "count")
    return HUGE_VAL;
  return *c.margin / std::abs(*c.threshold);
}

std::string room_text(const CriterionResult& c) {
  const double room = relative_room(c);
  if (!std::isfinite(room)) return "–";
  return escape(harness::plain_figure(100 * room, "pct", false, {}, {}, 2));
}

std::string measured_text(const Model& model, const CriterionResult& c) {
  const Metric* metric = model.metric(c.metric);
  if (metric == nullptr) return "**none**";
  if (!metric->value || !metric->withheld.empty()) return figure_text(*metric);
  const double threshold = c.threshold.value_or(*metric->value);
  const int digits =
      std::max(harness::digits_apart(*metric->value, threshold, c.unit),
               harness::digits_apart(c.observed.value_or(threshold), threshold, c.unit));
  return escape(harness::plain_figure(*metric->value, c.unit, is_multiple(*metric), metric->lo,
                                      metric->hi, digits));
}

}  // namespace reports

#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "reports/model.h"

/// The questions of the runbook and what the run answers, each a function of its criteria.
namespace reports {

enum class Answer { kNo, kNotDecided, kNotRun, kYes };  ///< what a reader must see first

struct Answered {
  std::string id;        ///< G-...; of a runbook without questions P-..., one a step
  std::string question;  ///< plain text, not escaped
  Answer answer = Answer::kNotRun;
  std::vector<const harness::CriterionResult*> criteria;  ///< those that decide it
  const harness::CriterionResult* decisive =
      nullptr;       ///< the one that decides; null without criteria
  std::string says;  ///< sentence of the runbook, may be empty
};

/// Each of these criteria PASSed; true of none.
bool all_pass(const Model& model, const std::vector<std::string>& criteria);

/// In the order of the runbook. A question is a yes where every blocker and major criterion of it
/// PASSes; criteria for information decide only where there are no others.
std::vector<Answered> answered(const Model& model);

/// "✅ yes", "❌ no", "❓ not decided", "⬜ not run"
std::string status_text(Answer answer);

/// A sentence of the runbook with its figures, Markdown: {METRIC} is the figure with its interval.
std::string sentence(const Model& model, std::string_view text);

/// The sentences that hold for this run, in one paragraph; of a runbook without any, the counts.
std::string answer_paragraph(const Model& model);

/// The same as plain text, for a terminal; empty where the runbook has no sentences.
std::string answer_text(const Model& model);

/// The room (distance from the threshold) of a criterion that PASSed: "23 %", "125x"; "–" for what
/// is exact.
std::string room_text(const harness::CriterionResult& criterion);

/// Margin over threshold; infinite where there is no measured margin.
double relative_room(const harness::CriterionResult& criterion);

/// The figure of a criterion with its interval and as many digits as distinguish it from the
/// threshold.
std::string measured_text(const Model& model, const harness::CriterionResult& criterion);

}  // namespace reports

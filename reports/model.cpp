#include "reports/model.h"

#include <algorithm>
#include <array>

#include "harness/results/number.h"
#include "harness/results/plain_figure.h"
#include "reports/escape.h"

namespace reports {

using harness::CriterionVerdict;
using harness::StepStatus;

namespace {

constexpr std::array kCriteriaOrder = {CriterionVerdict::kFail, CriterionVerdict::kInconclusive,
                                       CriterionVerdict::kNotEvaluated, CriterionVerdict::kPass};
constexpr std::array kStepsOrder = {StepStatus::kFailed, StepStatus::kPartial,
                                    StepStatus::kDeferred, StepStatus::kNotRun,
                                    StepStatus::kCompleted};

auto sort_key(const harness::CriterionResult* c) {
  const auto rank = std::ranges::find(kCriteriaOrder, c->verdict) - kCriteriaOrder.begin();
  return std::tuple(rank, static_cast<int>(c->severity), std::string_view(c->id));
}

}  // namespace

Model::Model(const harness::Results& r) : results(r) {
  for (const auto& m : results.metrics) {
    metric_by_name[m.name] = &m;
    if (m.method == "paired_ratio" || !m.verdict.empty()) comparisons.push_back(&m);
  }
  for (const auto& a : results.artifacts) artifact_by_path[a.path] = &a;
  for (const auto& c : results.criteria) criteria.push_back(&c);
  for (const auto& p : results.phases) ++steps_count[p.status];
  std::ranges::stable_sort(criteria, {}, sort_key);
}

const harness::Metric* Model::metric(std::string_view name) const {
  const auto found = metric_by_name.find(name);
  return found == metric_by_name.end() ? nullptr : found->second;
}

const harness::PhaseResult* Model::phase(std::string_view name) const {
  const auto found = std::ranges::find(results.phases, name, &harness::PhaseResult::name);
  return found == results.phases.end() ? nullptr : &*found;
}

std::vector<const harness::CriterionResult*> Model::criteria_of(std::string_view phase) const {
  std::vector<const harness::CriterionResult*> own;
  std::ranges::copy_if(criteria, std::back_inserter(own),
                       [&](const auto* c) { return c->phase == phase; });
  return own;
}

bool Model::advisory_changed_exit() const {
  const harness::Verdict& v = results.verdict;
  return v.gate == "advisory" && v.exit == 0 && v.word != "GO";
}

std::string status_text(StepStatus status) {
  const std::string word(harness::enum_name(status));
  switch (status) {
    case StepStatus::kCompleted:
      return "✅ " + word;
    case StepStatus::kPartial:
      return "🟡 " + word;
    case StepStatus::kDeferred:
      return "⏸ " + word;
    case StepStatus::kFailed:
      return "❌ " + word;
    case StepStatus::kNotRun:
      return "⬜ " + word;
  }
  return "❔ " + word;
}

std::string status_text(CriterionVerdict verdict) {
  const std::string word(harness::enum_name(verdict));
  switch (verdict) {
    case CriterionVerdict::kPass:
      return "✅ " + word;
    case CriterionVerdict::kFail:
      return "❌ " + word;
    case CriterionVerdict::kInconclusive:
      return "❓ " + word;
    case CriterionVerdict::kNotEvaluated:
      return "⬜ " + word;
  }
  return "❔ " + word;
}

std::string status_text(const harness::Verdict& verdict) {
  const std::string word = escape(verdict.word);
  if (verdict.word == "GO") return "✅ " + word;
  if (verdict.word == "PARTIAL") return "⚪ " + word;
  return (verdict.word == "CONDITIONAL GO" ? "🟡 " : "❌ ") + word;
}

std::string interval_text(const std::optional<double>& lo, const std::optional<double>& hi) {
  return lo && hi ? harness::format_interval(*lo, *hi) : "–";
}

std::string figure_text(const harness::Metric& metric) {
  if (!metric.withheld.empty()) return "**withheld**";
  if (!metric.value) return "**none**";
  return escape(
      harness::plain_figure(*metric.value, metric.unit, is_multiple(metric), metric.lo, metric.hi));
}

bool is_multiple(const harness::Metric& metric) {
  return metric.unit == "ratio" && metric.name.ends_with("speedup_ratio");
}

std::string threshold_text(const harness::CriterionResult& c) {
  constexpr std::array<std::pair<std::string_view, const char*>, 5> signs = {
      {{">=", "≥"}, {"<=", "≤"}, {"==", "="}, {">", ">"}, {"<", "<"}}};
  std::string sign = escape(c.op);
  for (const auto& [op, text] : signs)
    if (c.op == op) sign = text;
  if (!c.threshold) return sign + " not resolved";
  const double other = c.observed.value_or(*c.threshold);
  return sign + " " + escape(harness::format_apart(*c.threshold, other, c.unit).first);
}

std::string evidence_text(const Model& model, const harness::Metric* metric) {
  if (metric == nullptr || metric->samples.empty()) return "";
  const std::string& path = metric->samples.front();
  const std::string name = path.substr(path.rfind('/') + 1);
  std::string text = model.links_files ? file_link(name, path) : code(name);
  const auto artifact = model.artifact_by_path.find(path);
  if (artifact != model.artifact_by_path.end())
    text += " " + code(artifact->second->sha256.substr(0, 8));
  if (metric->samples.size() > 1) text += " +" + std::to_string(metric->samples.size() - 1);
  return text;
}

std::string steps_counts(const Model& model) {
  std::string text;
  for (const StepStatus status : kStepsOrder) {
    const auto found = model.steps_count.find(status);
    if (found != model.steps_count.end())
      text += (text.empty() ? "" : ", ") + std::to_string(found->second) + " " +
              std::string(harness::enum_name(status));
  }
  return text.empty() ? "none" : text;
}

}  // namespace reports

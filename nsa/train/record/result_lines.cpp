#include "nsa/train/record/result_lines.h"

#include <cmath>
#include <stdexcept>
#include <utility>

#include "nsa/program/input_error.h"

namespace nsa::train {
namespace {

/// Marks of the first steps are all written, later ones only after this many seconds of silence.
constexpr int64_t kEagerSteps = 3;
constexpr double kQuietSeconds = 0.5;

/// Figures of a step by name. A time that one launch for several stages leaves unknown is absent.
nlohmann::json figures_of(const StepRecord& r) {
  nlohmann::json figures = {{"grad_norm", r.grad_norm},
                            {"lr", r.lr},
                            {"load_ms", r.load_ms},
                            {"collective_ms", r.collective_ms},
                            {"step_ms", r.step_ms}};
  for (const auto& [name, ms] :
       {std::pair("forward_ms", r.forward_ms), std::pair("backward_ms", r.backward_ms),
        std::pair("optimizer_ms", r.optimizer_ms)})
    if (std::isfinite(ms)) figures[name] = ms;
  if (r.has_targets()) figures["loss"] = r.loss;
  if (r.targets >= 0) figures["targets"] = r.targets;
  if (r.validation_loss) figures["validation_loss"] = *r.validation_loss;
  if (r.validation_accuracy) figures["validation_accuracy"] = *r.validation_accuracy;
  if (r.gate.known())
    figures.update({{"gate_cmp", r.gate.cmp},
                    {"gate_sel", r.gate.sel},
                    {"gate_win", r.gate.win},
                    {"gate_entropy_nat", r.gate.entropy}});
  return figures;
}

}  // namespace

ResultLines::ResultLines(const std::string& path) try
    : emitter_(std::in_place, path, base::protocol::Emitter::Existing::kAppend) {
} catch (const base::protocol::Error& error) {
  throw InputError(error.what());
}

void ResultLines::hello(const std::string& build_id, const std::string& device,
                        const RankPlace& place, const std::map<std::string, std::string>& versions,
                        const std::vector<base::protocol::SwitchValue>& switches) {
  if (!emitter_) return;
  emitter_->hello({.program = "nsa-train",
                   .build_id = build_id,
                   .rank = place.rank,
                   .world = place.world,
                   .device = device,
                   .versions = versions,
                   .switches = switches});
}

void ResultLines::mark(const std::string& case_id, int64_t step, int64_t of,
                       const std::string& at) {
  if (!emitter_ || (step > kEagerSteps && emitter_->silence_s() < kQuietSeconds)) return;
  emitter_->beat({.case_id = case_id, .step = step, .of = of, .at = at});
}

void ResultLines::beat(const std::string& case_id, const StepRecord& record, int64_t of,
                       bool earlier) {
  if (!emitter_) return;
  emitter_->beat({.case_id = case_id,
                  .step = record.step,
                  .of = of,
                  .at = std::string(earlier ? base::protocol::kEarlierStep : base::protocol::kStep),
                  .rate = record.tok_s,
                  .rate_unit = "tok_s",
                  .mem_mib = record.mem_mib,
                  .extra = figures_of(record)});
}

void ResultLines::sample(const std::string& case_id, const std::string& series, double value,
                         const std::string& unit, int64_t order) {
  if (!std::isfinite(value)) throw std::runtime_error("sample " + series + " is not finite");
  if (!emitter_) return;
  emitter_->sample(
      {.case_id = case_id, .series = series, .value = value, .unit = unit, .order = order});
}

void ResultLines::metric(const std::string& case_id, const Figure& figure) {
  if (!emitter_) return;
  base::protocol::Metric line{.case_id = case_id, .name = figure.name, .unit = figure.unit};
  if (!figure.value)
    line.reason = figure.reason;
  else if (!std::isfinite(*figure.value))
    line.reason = "the figure is not finite";
  else if (figure.unit == "bool")
    line.value = *figure.value != 0;
  else
    line.value = *figure.value;
  emitter_->metric(line);
}

void ResultLines::check(const std::string& case_id, const Check& c) {
  if (!emitter_) return;
  emitter_->check({.case_id = case_id,
                   .id = c.id,
                   .ok = c.ok,
                   .code = c.code,
                   .detail = c.detail,
                   .err = c.error,
                   .tol = c.tolerance});
}

void ResultLines::table(const std::string& case_id, const std::string& id, const std::string& title,
                        const std::vector<std::string>& columns, const nlohmann::json& rows) {
  if (!emitter_) return;
  emitter_->table({.case_id = case_id, .id = id, .title = title, .columns = columns, .rows = rows});
}

void ResultLines::finding(const Finding& f) {
  if (!emitter_) return;
  emitter_->finding({.code = f.code,
                     .symptom = f.symptom,
                     .fact = f.fact,
                     .cause = f.cause,
                     .action = f.action,
                     .priority = "immediate"});
}

void ResultLines::case_end(const std::string& case_id, const std::string& failure) {
  if (!emitter_) return;
  failure.empty() ? emitter_->end_case(case_id) : emitter_->fail_case(case_id, failure);
}

void ResultLines::done() {
  if (emitter_) emitter_->done();
}

}  // namespace nsa::train

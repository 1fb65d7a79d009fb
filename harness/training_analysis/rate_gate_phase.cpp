// The gate between a short training and a long one: what two criteria on its rate mean together.
#include "harness/phases/builtin_phases.h"
#include "harness/results/number.h"
#include "harness/training_analysis/rate_gate.h"
#include "harness/training_analysis/run_so_far.h"

namespace harness {
namespace {

using nlohmann::json;

constexpr const char* kWhatFollows[] = {
    "production may start", "no production: stop here and close the gap first",
    "no production: abort, and debug with profile, factors and gap analysis",
    "no production: measure again, with more steps or on a quieter machine"};

std::string threshold_text(const CriterionResult& criterion) {
  return criterion.threshold ? format_value(*criterion.threshold, criterion.unit) : "none";
}

void emit_bool(const BuiltinCall& call, base::protocol::Emitter& emitter, const char* name,
               json value, const std::string& reason) {
  emitter.metric({.case_id = call.in.cases.front().id,
                  .name = name,
                  .value = std::move(value),
                  .unit = "bool",
                  .reason = reason});
}

}  // namespace

GateDecision decide_gate(CriterionVerdict proceed, CriterionVerdict abort) {
  using enum CriterionVerdict;
  if (abort == kFail) return GateDecision::kAbort;
  if (proceed == kPass && abort == kPass) return GateDecision::kProceed;
  return proceed == kFail ? GateDecision::kStop : GateDecision::kUndecided;
}

std::string_view gate_word(GateDecision decision) {
  static constexpr std::string_view kWords[] = {"PROCEED", "STOP", "ABORT", "UNDECIDED"};
  return kWords[static_cast<size_t>(decision)];
}

void run_rate_gate(const BuiltinCall& call, base::protocol::Emitter& emitter) {
  const std::string id = call.in.cases.front().id;
  const json args = base::protocol::merged_args(call.in, call.in.cases.front());
  const RunSoFar run = run_so_far(call.run_dir);
  const CriterionResult* proceed = run.criterion(args.value("proceed", ""));
  const CriterionResult* abort = run.criterion(args.value("abort", ""));
  if (proceed == nullptr || abort == nullptr || proceed->metric != abort->metric)
    return emitter.fail_case(id,
                             "args.proceed and args.abort must name two criteria of this runbook "
                             "on one figure, got '" +
                                 args.value("proceed", "") + "' and '" + args.value("abort", "") +
                                 "'");
  const GateDecision decision = decide_gate(proceed->verdict, abort->verdict);
  const std::string word(gate_word(decision)),
      follows = kWhatFollows[static_cast<size_t>(decision)];
  const size_t dot = proceed->metric.find('.');
  const std::string phase = proceed->metric.substr(0, dot), name = proceed->metric.substr(dot + 1);
  const Metric* rate = run.figure(phase, name);
  const std::string seen = rate != nullptr ? measured_text(*rate) : run.why_no_figure(phase, name);
  const bool decided = decision != GateDecision::kUndecided;
  emit_bool(call, emitter, "decision.proceed_bool",
            decided ? json(decision == GateDecision::kProceed) : json(), proceed->reason);
  emit_bool(call, emitter, "decision.abort_bool",
            decided ? json(decision == GateDecision::kAbort) : json(), abort->reason);
  emitter.table({.case_id = id,
                 .id = "decision",
                 .title = "May a long run start?",
                 .columns = {"decision", "rate", "proceed from", "abort below", "what follows"},
                 .rows = json::array({json::array(
                     {word, seen, threshold_text(*proceed), threshold_text(*abort), follows})})});
  if (decision != GateDecision::kProceed)
    emitter.finding({.code = "RATE_GATE",
                     .symptom = word + " at " + seen + ": " + follows,
                     .fact = (decision == GateDecision::kAbort ? abort : proceed)->id,
                     .priority = "immediate"});
  emitter.end_case(id);
}

}  // namespace harness

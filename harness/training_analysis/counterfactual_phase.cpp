#include <algorithm>
#include <cmath>

#include "harness/phases/builtin_phases.h"
#include "harness/preflight/switches.h"
#include "harness/schema/parse/nearest.h"
#include "harness/training_analysis/counterfactual.h"
#include "harness/training_analysis/run_so_far.h"

namespace harness {
namespace {

using nlohmann::json;

/// The highest gate on the throughput of a phase; null: there is none.
const CriterionResult* rate_gate(const Results& results, const std::string& phase) {
  const CriterionResult* highest = nullptr;
  for (const CriterionResult& c : results.criteria) {
    if (!c.metric.starts_with(phase + ".") || c.unit != "tok_s" || !c.op.starts_with(">")) continue;
    if (highest == nullptr || c.threshold.value_or(0) > highest->threshold.value_or(0))
      highest = &c;
  }
  return highest;
}

/// The first recommended setting that nsa-train does not have; empty when it has all. Switches are
/// checked by nsa-train itself.
std::string unknown_setting(const json& recommended, const PlannedPhase& phase) {
  std::vector<std::string> names;
  for (const auto& [name, value] : phase.args.items()) names.push_back(name);
  for (const auto& [name, value] : recommended.items())
    if (!name.starts_with("NSA_") && !phase.args.contains(name))
      return "args.recommended: nsa-train has no argument '" + name + "'" +
             did_you_mean(name, names);
  return "";
}

json rows_of(const CounterfactualResult& result) {
  json rows = json::array();
  for (const FactorGain& f : result.gap.factors)
    rows.push_back(
        json::array({f.name, f.rate.value, f.rate.lo,
                     std::isfinite(f.rate.hi) ? json(f.rate.hi) : json("unbounded"), f.gain, f.lo,
                     std::isfinite(f.hi) ? json(f.hi) : json("unbounded"), f.share_pct}));
  return rows;
}

CounterfactualPlan plan_of(const std::filesystem::path& bin_dir, const PlannedPhase& phase,
                           const json& args, double target, const BuiltinCall& call) {
  CounterfactualPlan plan;
  plan.program = bin_dir / "nsa-train";
  plan.settings = {phase.args, switches_here(phase.switches)};
  plan.recommended = args.at("recommended");
  plan.device = phase.device;
  plan.seed = call.in.seed;
  plan.steps = args.at("steps").get<int64_t>();
  plan.budget_s = args.at("budget_s").get<double>();
  plan.target_tok_s = target;
  return plan;
}

void emit_result(const std::string& id, const CounterfactualResult& result,
                 base::protocol::Emitter& emitter) {
  emitter.metric({.case_id = id,
                  .name = "factors.tried_count",
                  .value = result.gap.factors.size(),
                  .unit = "count"});
  emitter.metric({.case_id = id,
                  .name = "gap.target_ratio",
                  .value = result.problem.empty() ? json(result.gap.gap) : json(),
                  .unit = "ratio",
                  .reason = result.problem});
  emitter.metric({.case_id = id,
                  .name = "gap.explained_pct",
                  .value = result.problem.empty() ? json(result.gap.explained_pct) : json(),
                  .unit = "pct",
                  .reason = result.problem});
  if (!result.problem.empty()) return;
  emitter.table({.case_id = id,
                 .id = "factors",
                 .title = "One setting changed at a time: rate in tok/s and gain with 99 % bounds, "
                          "share of the gap in %",
                 .columns = {"factor", "rate", "lo", "hi", "gain", "gain lo", "gain hi", "share"},
                 .rows = rows_of(result)});
  emitter.finding({.code = "GAP_ATTRIBUTED", .symptom = gap_text(result), .priority = "immediate"});
}

}  // namespace

void run_counterfactual_phase(const std::filesystem::path& bin_dir, const BuiltinCall& call,
                              base::protocol::Emitter& emitter) {
  const std::string id = call.in.cases.front().id;
  const json args = base::protocol::merged_args(call.in, call.in.cases.front());
  const std::string of = args.value("of", "");
  const RunSoFar run = run_so_far(call.run_dir);
  const PlannedPhase* phase = run.phase(of);
  if (phase == nullptr || phase->program != "nsa-train")
    return emitter.fail_case(id, "args.of must name a phase of nsa-train, got '" + of + "'");
  if (const std::string unknown = unknown_setting(args.at("recommended"), *phase); !unknown.empty())
    return emitter.fail_case(id, unknown);
  const CriterionResult* gate = rate_gate(run.results, of);
  if (gate == nullptr)
    return emitter.fail_case(id, "phase " + of + " has no gate on tok_s that could fail");
  if (gate->verdict == CriterionVerdict::kNotEvaluated || !gate->threshold)
    return emitter.fail_case(id, gate->id + " was not evaluated: " + gate->reason);
  if (gate->verdict == CriterionVerdict::kPass && !args.value("always", false)) {
    emit_result(id, {.gap = {}, .base = {}, .not_tried = {}, .problem = gate->id + " passed"},
                emitter);
    return emitter.end_case(id);
  }
  const double target = std::max(args.value("target_tok_s", 0.0), *gate->threshold);
  emit_result(id, run_counterfactual(plan_of(bin_dir, *phase, args, target, call), id, &emitter),
              emitter);
  emitter.end_case(id);
}

}  // namespace harness

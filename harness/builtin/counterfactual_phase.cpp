#include <algorithm>
#include <cmath>

#include "harness/builtin/builtins.h"
#include "harness/builtin/counterfactual.h"
#include "harness/evidence/derive.h"
#include "harness/evidence/run_files.h"
#include "harness/schema/error.h"

namespace harness {
namespace {

using nlohmann::json;

/// The gate on throughput of a phase that has ended in this run; null: it has none.
const CriterionResult* rate_gate(const Results& results, const std::string& phase) {
  const auto found = std::ranges::find_if(results.criteria, [&](const CriterionResult& c) {
    return c.phase == phase && c.unit == "tok_s" && c.op.starts_with(">");
  });
  return found == results.criteria.end() ? nullptr : &*found;
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
  plan.settings = {phase.args, phase.switches};
  plan.recommended = args.at("recommended");
  plan.device = phase.device;
  plan.seed = call.in.seed;
  plan.steps = args.at("steps").get<int64_t>();
  plan.budget_s = args.at("budget_s").get<double>();
  plan.target_tok_s = target;
  return plan;
}

void say_result(const std::string& id, const CounterfactualResult& result,
                protocol::Emitter& emitter) {
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
                              protocol::Emitter& emitter) {
  const std::string id = call.in.cases.front().id;
  const json args = protocol::merged_args(call.in, call.in.cases.front());
  const std::string of = args.value("of", "");
  const RunFolder run(call.run_dir);
  const RunFiles files = read_run_files(run);
  const auto phase = std::ranges::find(files.plan.phases, of, &PlannedPhase::id);
  if (phase == files.plan.phases.end() || phase->program != "nsa-train")
    return emitter.fail_case(id, "args.of must name a phase of nsa-train, got '" + of + "'");
  const Results so_far = derive_all(run).results;
  const CriterionResult* gate = rate_gate(so_far, of);
  if (gate == nullptr)
    return emitter.fail_case(id, "phase " + of + " has no gate on tok_s that could fail");
  if (gate->verdict == CriterionVerdict::kNotEvaluated || !gate->threshold)
    return emitter.fail_case(id, gate->id + " was not evaluated: " + gate->reason);
  if (gate->verdict == CriterionVerdict::kPass) {
    say_result(id, {.gap = {}, .base = {}, .not_tried = {}, .problem = gate->id + " passed"},
               emitter);
    return emitter.end_case(id);
  }
  say_result(
      id, run_counterfactual(plan_of(bin_dir, *phase, args, *gate->threshold, call), id, &emitter),
      emitter);
  emitter.end_case(id);
}

}  // namespace harness

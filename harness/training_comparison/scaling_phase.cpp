// How the rate of training grows with the number of GPUs, from phases of nsa-train that ran before.
#include "harness/phases/builtin_phases.h"
#include "harness/results/number.h"
#include "harness/schema/error.h"
#include "harness/training_analysis/run_so_far.h"
#include "harness/training_comparison/scaling.h"

namespace harness {
namespace {

using nlohmann::json;

constexpr const char* kRateMetric = "speed.rate_tok_s";

json cell(const std::optional<double>& value) {
  return value ? json(round_significant(*value, 4)) : json();
}

}  // namespace

void run_scaling(const BuiltinCall& call, base::protocol::Emitter& emitter) {
  const std::string id = call.in.cases.front().id;
  const json args = base::protocol::merged_args(call.in, call.in.cases.front());
  const std::string base = args.value("base", "");
  const RunSoFar run = run_so_far(call.run_dir);
  const Metric* one = run.figure(base, kRateMetric);
  if (one == nullptr) return emitter.fail_case(id, run.why_no_figure(base, kRateMetric));
  json rows = json::array({json::array({1, cell(one->value), cell(one->lo), cell(one->hi), 100})});
  int64_t measured = 0;
  for (const json& name : args.at("of")) {
    const std::string of = name.is_string() ? name.get<std::string>() : name.dump();
    const PlannedPhase* phase = run.phase(of);
    if (phase == nullptr)
      return emitter.fail_case(id, "args.of names '" + of + "', which is no phase of this runbook");
    const auto ranks = static_cast<int64_t>(phase->args.value("ranks", 0.0));
    const std::string prefix = "efficiency.x" + std::to_string(ranks);
    const auto emit = [&](const std::string& end, const std::optional<double>& value) {
      emitter.metric({.case_id = id,
                      .name = prefix + end,
                      .value = value ? json(*value) : json(),
                      .unit = "pct",
                      .reason = value ? "" : run.why_no_figure(of, kRateMetric)});
    };
    const Metric* several = run.figure(of, kRateMetric);
    if (several == nullptr) {
      emit("_pct", std::nullopt);
      emit("_lo_pct", std::nullopt);
      continue;
    }
    try {
      const ScalingEfficiency found = scaling_efficiency(*one, *several, ranks);
      emit("_pct", found.pct);
      emit("_lo_pct", found.lo_pct);
      rows.push_back(
          {ranks, cell(several->value), cell(several->lo), cell(several->hi), cell(found.pct)});
      ++measured;
    } catch (const Error& error) {
      return emitter.fail_case(id, of + ": " + error.what());
    }
  }
  emitter.metric(
      {.case_id = id, .name = "points.measured_count", .value = measured, .unit = "count"});
  emitter.table({.case_id = id,
                 .id = "scaling",
                 .title = "Rate of training by number of GPUs, the same rows on each",
                 .columns = {"GPUs", "tok/s", "from", "to", "of linear, %"},
                 .rows = rows,
                 .reason = "no interval at this number of steps"});
  emitter.end_case(id);
}

}  // namespace harness

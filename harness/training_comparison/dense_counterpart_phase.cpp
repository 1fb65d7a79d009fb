// Phases of nsa-train beside their dense counterparts on the same batches: rates, memory, and how
// memory grows with the length.
#include "harness/phases/builtin_phases.h"
#include "harness/results/number.h"
#include "harness/schema/error.h"
#include "harness/training_analysis/run_so_far.h"
#include "harness/training_comparison/dense_counterpart.h"

namespace harness {
namespace {

using nlohmann::json;

constexpr const char *kRate = "speed.rate_tok_s", *kPeak = "memory.peak_mib";

/// Shape of the steps of a phase of nsa-train.
StepMemory shape_of(const RunSoFar& run, const std::string& id) {
  const PlannedPhase* phase = run.phase(id);
  if (phase == nullptr || phase->kind != "nsa-train")
    throw Error("args must name phases of nsa-train of this runbook, got '" + id + "'");
  const auto number = [&](const char* name) {
    return static_cast<int64_t>(phase->args.value(name, 0.0));
  };
  StepMemory shape{.seq_len = number("seq_len"), .tokens = 0, .peak_mib = 0};
  shape.tokens = shape.seq_len * number("batch") * number("accum");
  if (shape.tokens <= 0) throw Error("phase " + id + " must set seq_len, batch and accum");
  return shape;
}

/// Empty where the phase did not measure it.
std::optional<double> figure_of(const RunSoFar& run, const std::string& id, const char* name) {
  const Metric* metric = run.figure(id, name);
  return metric == nullptr ? std::nullopt : metric->value;
}

json figure_cell(const std::optional<double>& value, int digits) {
  return value ? json(round_significant(*value, digits)) : json();
}

/// Rows of the table, and what is counted over them.
struct Beside {
  json rows = json::array();
  int64_t compared = 0;
  std::vector<StepMemory> memory;

  void add(const RunSoFar& run, const std::string& of, const std::string& against) {
    StepMemory shape = shape_of(run, of);
    const StepMemory counterpart = shape_of(run, against);
    if (counterpart.seq_len != shape.seq_len || counterpart.tokens != shape.tokens)
      throw Error("phases " + of + " and " + against + " have steps of different shapes");
    const auto rate = figure_of(run, of, kRate), other = figure_of(run, against, kRate);
    const auto peak = figure_of(run, of, kPeak), other_peak = figure_of(run, against, kPeak);
    std::optional<double> quotient;
    if (rate && other && *other > 0) quotient = *rate / *other;
    compared += quotient ? 1 : 0;
    if (peak) {
      shape.peak_mib = *peak;
      memory.push_back(shape);
    }
    rows.push_back({of, against, shape.seq_len, shape.tokens / shape.seq_len, figure_cell(rate, 4),
                    figure_cell(other, 4), figure_cell(quotient, 3), figure_cell(peak, 4),
                    figure_cell(other_peak, 4)});
  }
};

}  // namespace

void run_dense_counterpart(const BuiltinCall& call, base::protocol::Emitter& emitter) {
  const std::string id = call.in.cases.front().id;
  const json args = base::protocol::merged_args(call.in, call.in.cases.front());
  const auto of = args.at("of").get<std::vector<std::string>>(),
             against = args.at("against").get<std::vector<std::string>>();
  if (of.empty() || of.size() != against.size())
    throw Error("args.of and args.against must name as many phases each, at least one, got " +
                std::to_string(of.size()) + " and " + std::to_string(against.size()));
  const RunSoFar run = run_so_far(call.run_dir);
  Beside beside;
  for (size_t i = 0; i < of.size(); ++i) beside.add(run, of[i], against[i]);
  emitter.metric(
      {.case_id = id, .name = "pairs.compared_count", .value = beside.compared, .unit = "count"});
  const auto growth = memory_growth(beside.memory);
  emitter.metric({.case_id = id,
                  .name = "memory.per_token_growth_ratio",
                  .value = growth ? json(*growth) : json(),
                  .unit = "ratio",
                  .reason = growth ? "" : "no two runs of different lengths have a peak memory"});
  emitter.table({.case_id = id,
                 .id = "dense_counterpart",
                 .title = "Training beside the counterpart, the same batches",
                 .columns = {"phase", "counterpart", "tokens of a row", "rows", "tok/s",
                             "tok/s of the counterpart", "over the counterpart", "peak, MiB",
                             "peak of the counterpart, MiB"},
                 .rows = beside.rows,
                 .reason = "the phase did not run, or not to its end"});
  emitter.end_case(id);
}

}  // namespace harness

// What a long run takes and costs, from the bounds of the rate of a short one.
#include <cmath>

#include "harness/phases/builtin_phases.h"
#include "harness/results/number.h"
#include "harness/training_analysis/run_so_far.h"

namespace harness {
namespace {

using nlohmann::json;

constexpr double kSecondsPerHour = 3600;

json row_of(const std::string& what, const Metric& time, double per_second) {
  const auto cell = [&](const std::optional<double>& seconds) {
    return seconds ? json(round_significant(*seconds * per_second, 4)) : json();
  };
  return json::array({what, cell(time.value), cell(time.lo), cell(time.hi)});
}

}  // namespace

void run_forecast(const BuiltinCall& call, base::protocol::Emitter& emitter) {
  const std::string id = call.in.cases.front().id;
  const json args = base::protocol::merged_args(call.in, call.in.cases.front());
  const std::string of = args.value("of", "");
  const double price = args.at("price_per_gpu_hour").get<double>();
  if (!(std::isfinite(price) && price >= 0))
    return emitter.fail_case(id,
                             "args.price_per_gpu_hour must be >= 0, got " + format_number(price));
  const RunSoFar run = run_so_far(call.run_dir);
  const Metric* time = run.figure(of, "eta.long_run_s");
  const PlannedPhase* phase = run.phase(of);
  if (time == nullptr || phase == nullptr)
    return emitter.fail_case(id, run.why_no_figure(of, "eta.long_run_s"));
  const double gpus = std::max(1.0, phase->args.value("ranks", 0.0));
  const std::string currency = args.value("currency", ""),
                    steps = format_number(time->details.value("steps", 0.0));
  json rows = json::array({row_of("time of " + steps + " steps, h", *time, 1 / kSecondsPerHour),
                           row_of("GPU hours", *time, gpus / kSecondsPerHour)});
  rows.push_back(price > 0 ? row_of("cost, " + currency + ", at " + format_number(price) + " " +
                                        currency + " a GPU hour",
                                    *time, gpus * price / kSecondsPerHour)
                           : json::array({"cost: the runbook names no price of a GPU hour", nullptr,
                                          nullptr, nullptr}));
  emitter.metric({.case_id = id, .name = "price.set_bool", .value = price > 0, .unit = "bool"});
  emitter.table({.case_id = id,
                 .id = "forecast",
                 .title = "A long run at the measured rate, bounds at " +
                          format_number(100 * time->level) +
                          " %; the price is a setting of the runbook, not a measurement",
                 .columns = {"what", "estimate", "from", "to"},
                 .rows = rows,
                 .reason = "no interval at this number of steps, or no price"});
  emitter.end_case(id);
}

}  // namespace harness

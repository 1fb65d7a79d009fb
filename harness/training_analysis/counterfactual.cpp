#include "harness/training_analysis/counterfactual.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "harness/phases/worker_call.h"
#include "harness/results/number.h"
#include "harness/schema/error.h"
#include "harness/stats/within_run.h"

namespace harness {
namespace {

using nlohmann::json;

constexpr const char* kTogether = "together";
constexpr int64_t kUntimed = 3;

bool is_switch(const std::string& key) { return key.starts_with("NSA_"); }

json value_of(const TrainSettings& settings, const std::string& key) {
  if (!is_switch(key)) return settings.args.value(key, json());
  const auto found = settings.switches.find(key);
  return found == settings.switches.end() ? json() : json(found->second);
}

/// null as recommended value: the switch or argument is not set.
void set_value(TrainSettings& settings, const std::string& key, const json& value) {
  if (!is_switch(key)) {
    if (value.is_null())
      settings.args.erase(key);
    else
      settings.args[key] = value;
  } else if (value.is_null()) {
    settings.switches.erase(key);
  } else {
    settings.switches[key] = value.is_string() ? value.get<std::string>() : value.dump();
  }
}

/// Rate and interval of one run, from its samples; tok/s is the inverse of the mean time a token.
MeasuredRate rate_of(const std::vector<double>& tok_s, const std::string& device) {
  std::vector<double> times;
  for (const double rate : tok_s) times.push_back(1 / rate);
  const stats::WithinRun run =
      stats::within_run_mean(times, device == "cuda" ? stats::kGpuGuardBand : stats::kCpuGuardBand);
  if (!run.verdict_interval) return {1 / run.mean, 0, INFINITY};
  return {1 / run.mean, 1 / run.verdict_interval->hi, 1 / run.verdict_interval->lo};
}

class Experiment {
 public:
  Experiment(const CounterfactualPlan& plan, const std::string& case_id,
             base::protocol::Emitter* emitter)
      : plan_(plan), case_(case_id), emitter_(emitter) {}

  double seconds_left() const {
    return plan_.budget_s -
           std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  /// Trains with these settings. Throws Error when the run gives no rate.
  MeasuredRate run(const std::string& name, const TrainSettings& settings) {
    WorkerCall call{.program = plan_.program, .kind = "nsa-train", .args = settings.args};
    call.flags = {"--worker"};
    call.mode = "time";
    call.device = plan_.device;
    call.seed = plan_.seed;
    call.env.assign(settings.switches.begin(), settings.switches.end());
    call.timeout_s = std::max(1.0, seconds_left());
    call.args.update({{"steps", plan_.steps}, {"untimed_steps", kUntimed}});
    const WorkerAnswer answer = call_worker(call);
    if (!answer.problem.empty()) throw Error(answer.problem);
    const auto& end = answer.transcript.ended.at("injected");
    if (end.status != "ok") throw Error(end.reason);
    std::vector<double> rates;
    for (const auto& line : answer.transcript.lines) {
      const auto* sample = std::get_if<base::protocol::Sample>(&line.message);
      if (sample == nullptr || sample->series != "tok_s") continue;
      if (!sample->value || *sample->value <= 0)
        throw Error("the run gave a rate that is none: " +
                    (sample->value ? std::to_string(*sample->value) : sample->reason));
      rates.push_back(*sample->value);
    }
    if (rates.empty()) throw Error("the run gave no rate");
    emit(name, rates);
    return rate_of(rates, plan_.device);
  }

 private:
  void emit(const std::string& name, const std::vector<double>& rates) const {
    if (emitter_ == nullptr) return;
    for (size_t i = 0; i < rates.size(); ++i)
      emitter_->sample({.case_id = case_,
                        .series = name,
                        .value = rates[i],
                        .unit = "tok_s",
                        .order = static_cast<int64_t>(i)});
    emitter_->beat({.case_id = case_, .step = 1, .of = 0, .at = name});
  }

  const CounterfactualPlan& plan_;
  std::string case_;
  base::protocol::Emitter* emitter_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

std::vector<Factor> plan_factors(const TrainSettings& settings, const json& recommended) {
  std::vector<Factor> factors;
  Factor together{kTogether, settings};
  for (const auto& [key, value] : recommended.items()) {
    if (value_of(settings, key) == value) continue;
    factors.push_back({key, settings});
    set_value(factors.back().settings, key, value);
    set_value(together.settings, key, value);
  }
  if (factors.size() > 1) factors.push_back(together);
  return factors;
}

GapAttribution attribute_gap(const MeasuredRate& base, double target,
                             const std::vector<std::pair<std::string, MeasuredRate>>& factors) {
  GapAttribution result;
  result.gap = target / base.value;
  const double log_gap = std::log(result.gap);
  for (const auto& [name, rate] : factors) {
    FactorGain gain{name, rate};
    gain.gain = rate.value / base.value;
    gain.lo = rate.lo / base.hi;
    gain.hi = base.lo > 0 ? rate.hi / base.lo : INFINITY;
    gain.share_pct = log_gap > 0 ? 100 * std::log(gain.gain) / log_gap : 0;
    if (name != kTogether) result.explained_pct += gain.share_pct;
    result.factors.push_back(gain);
  }
  std::ranges::stable_sort(result.factors, std::greater<>(), &FactorGain::gain);
  return result;
}

CounterfactualResult run_counterfactual(const CounterfactualPlan& plan, const std::string& case_id,
                                        base::protocol::Emitter* emitter) {
  CounterfactualResult result;
  const std::vector<Factor> factors = plan_factors(plan.settings, plan.recommended);
  if (factors.empty()) {
    result.problem = "every recommended setting is in force: no single change can explain the gap";
    return result;
  }
  Experiment experiment(plan, case_id, emitter);
  std::vector<std::pair<std::string, MeasuredRate>> measured;
  try {
    result.base = experiment.run("base", plan.settings);
  } catch (const std::exception& e) {
    result.problem = std::string("the base run gave no rate: ") + e.what();
    return result;
  }
  for (const Factor& factor : factors) {
    if (experiment.seconds_left() <= 0) {
      result.not_tried.push_back(factor.name + ": the budget of " +
                                 format_number(plan.budget_s, 3) + " s is used up");
      continue;
    }
    try {
      measured.emplace_back(factor.name, experiment.run(factor.name, factor.settings));
    } catch (const std::exception& e) {
      result.not_tried.push_back(factor.name + ": " + e.what());
    }
  }
  result.gap = attribute_gap(result.base, plan.target_tok_s, measured);
  if (measured.empty()) result.problem = "no factor could be tried: " + result.not_tried.front();
  return result;
}

std::string gap_text(const CounterfactualResult& result) {
  if (!result.problem.empty()) return result.problem;
  std::string text = "gap x" + format_number(result.gap.gap, 3);
  for (const FactorGain& f : result.gap.factors)
    text += ", " + f.name + " x" + format_number(f.gain, 3) + " [" + format_number(f.lo, 3) + ", " +
            format_number(f.hi, 3) + "] " + format_number(f.share_pct, 3) + " %";
  text += "; single factors explain " + format_number(result.gap.explained_pct, 3) + " %";
  for (const std::string& reason : result.not_tried) text += "; not tried: " + reason;
  return text;
}

}  // namespace harness

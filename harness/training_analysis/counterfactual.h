#pragma once
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/protocol/emitter.h"

/// Explains a gap in throughput by experiment: every setting that is not the recommended one is
/// changed alone, and the rate measured again.
namespace harness {

/// Settings of a training run: arguments of nsa-train and switches.
struct TrainSettings {
  nlohmann::json args = nlohmann::json::object();
  std::map<std::string, std::string> switches = {};
};

/// One change of the settings.
struct Factor {
  std::string name;  ///< argument or switch; "together": all of them
  TrainSettings settings;
};

/// One factor for each key of `recommended` (an argument, or a switch NSA_...) whose value the
/// settings do not have, in the order of the keys; with more than one, last "together". Pure.
std::vector<Factor> plan_factors(const TrainSettings& settings, const nlohmann::json& recommended);

/// A rate in tok/s with its 99 % interval; no interval for fewer steps than it takes.
struct MeasuredRate {
  double value = 0, lo = 0, hi = 0;
};

/// What one factor does to the gap.
struct FactorGain {
  std::string name;
  MeasuredRate rate;
  double gain = 1, lo = 1, hi = 1;  ///< rate over the base's; bounds from the worst pair of bounds
  double share_pct = 0;             ///< ln(gain) of ln(target / base)
};

struct GapAttribution {
  std::vector<FactorGain> factors;  ///< largest gain first
  double gap = 1;                   ///< target / base
  double explained_pct = 0;  ///< sum of the shares of the single factors: 100 when they multiply up
                             ///< to the gap; like every share 0 when there is no gap
};

/// Pure. Rates and target must be positive. Factors whose interval holds 1 have a share
/// nevertheless, with their interval beside it. "together" is in no sum.
GapAttribution attribute_gap(const MeasuredRate& base, double target,
                             const std::vector<std::pair<std::string, MeasuredRate>>& factors);

struct CounterfactualPlan {
  std::filesystem::path program;  ///< nsa-train
  TrainSettings settings;         ///< as the gate saw them
  nlohmann::json recommended = nlohmann::json::object();
  std::string device = "cpu";
  int64_t seed = 1, steps = 26;
  double target_tok_s = 0, budget_s = 300;
};

struct CounterfactualResult {
  GapAttribution gap;
  MeasuredRate base;
  std::vector<std::string> not_tried;  ///< "NAME: why"
  std::string problem;                 ///< why there is no attribution; empty when there is one
};

/// Runs base and factors one after another, each `steps` steps, within the budget; writes the
/// samples of every run as series NAME of `case_id` when `emitter` is given. Changes nothing.
CounterfactualResult run_counterfactual(const CounterfactualPlan& plan, const std::string& case_id,
                                        base::protocol::Emitter* emitter);

/// "gap 2.1: batch x1.6 [1.5, 1.7] 62 %, dtype x1.2 [1.1, 1.3] 25 %; single factors explain 87 %".
std::string gap_text(const CounterfactualResult& result);

}  // namespace harness

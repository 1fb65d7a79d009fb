// Every operator against the oracle and the invariants, over a seeded sample of configurations.
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "base/text/nearest.h"
#include "suites/conformance/checks/invariant_checks.h"
#include "suites/conformance/checks/operator_checks.h"
#include "suites/conformance/convert.h"
#include "suites/faults/faults.h"
#include "suites/instrument/facts.h"
#include "suites/phases/attention_under_test.h"

namespace suites {
namespace {

/// What one case runs.
struct ConformancePlan {
  std::vector<std::string> ops;
  std::vector<at::ScalarType> types;
  int64_t configs = 0;
  Candidate candidate;
  bool wants(const std::string& op) const {
    return op.empty() || ops.front() == "all" || std::find(ops.begin(), ops.end(), op) != ops.end();
  }
};

ConformancePlan read_conformance_plan(const PhaseCase& one) {
  const Args& args = one.args;
  ConformancePlan plan;
  plan.ops = args.get_list("ops", {"all"});
  std::vector<std::string> known = op_families();
  known.emplace_back("all");
  for (const std::string& op : plan.ops)
    if (std::find(known.begin(), known.end(), op) == known.end())
      throw ConfigError("args.ops must name op families that have checks, got '" + op +
                        "'; nearest: " + base::closest_name(op, known));
  for (const std::string& name : args.get_list("dtypes", {"fp64", "fp32", "bf16", "fp16"})) {
    try {
      plan.types.push_back(parse_dtype(name));
    } catch (const c10::Error& error) {
      throw ConfigError(error.what_without_backtrace());
    }
  }
  plan.configs = args.get_int("configs", kCornerCases + 4, 1);
  const std::string fault = args.get_text("fault", "");
  nsa::NsaOptions options = one.options;
  if (fault == "P07/sel_attn") options = {};  // gather, whatever the switches ask for
  plan.candidate = candidate_under(options);
  if (!fault.empty()) {
    try {
      plan.candidate = with_fault(plan.candidate, fault);
    } catch (const c10::Error& error) {
      throw ConfigError(error.what_without_backtrace());
    }
  }
  return plan;
}

/// Data kinds take turns over the configurations; the first of each is normal.
DataKind kind_of(int64_t index) {
  return index % 2 == 0
             ? DataKind::kNormal
             : all_data_kinds()[static_cast<size_t>(index / 2) % all_data_kinds().size()];
}

/// The comparison nearest to its allowance, for each operator, type and tensor over all
/// configurations. Comparisons that allow nothing are left out: they are equal or they fail.
class WorstAgreement {
 public:
  void take(const Check& check) {
    if (!check.id.starts_with("oracle/") || !(check.tol > 0)) return;
    const size_t end = check.id.rfind('/');
    const auto [found, first] = worst_.try_emplace(check.id.substr(0, end), check);
    if (!first && share(check) > share(found->second)) found->second = check;
  }

  void emit(const PhaseCase& one) const {
    std::vector<std::pair<double, const Check*>> order;  // by share, the largest first
    for (const auto& [name, check] : worst_) order.emplace_back(-share(check), &check);
    std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
      return std::tie(a.first, a.second->id) < std::tie(b.first, b.second->id);
    });
    nlohmann::json rows = nlohmann::json::array();
    for (size_t i = 0; i < std::min(order.size(), kMostRows); ++i) {
      const Check& check = *order[i].second;
      const size_t end = check.id.rfind('/');
      const bool finite = std::isfinite(check.err);
      rows.push_back({check.id.substr(0, end), check.id.substr(end + 1),
                      finite ? nlohmann::json(check.err) : nlohmann::json(), check.tol,
                      finite ? nlohmann::json(share(check)) : nlohmann::json()});
    }
    one.emitter.table({.case_id = one.id,
                       .id = "agreement",
                       .title = "Error over allowance, the worst of all configurations, above 1 a "
                                "comparison fails: " +
                                std::to_string(rows.size()) + " of " + std::to_string(order.size()),
                       .columns = {"comparison", "worst configuration", "error", "allowance",
                                   "error over allowance"},
                       .rows = rows,
                       .reason = "an error that is not finite has no share; it stands first"});
  }

 private:
  /// Nothing is worse than an error that is not finite.
  static double share(const Check& check) {
    return std::isfinite(check.err) ? check.err / check.tol : HUGE_VAL;
  }

  static constexpr size_t kMostRows = 60;
  std::map<std::string, Check> worst_;  ///< by id without the configuration
};

/// One case: reports every check and a beat as soon as its part of a configuration is done, so that
/// a slow machine still shows progress.
class ConformanceRun {
 public:
  ConformanceRun(const PhaseCase& one, const ConformancePlan& plan)
      : one_(one), plan_(plan), steps_(plan.configs * static_cast<int64_t>(plan.types.size())) {}

  void configuration(const OperatorCase& each, int64_t index) {
    const Candidate& candidate = plan_.candidate;
    emit(each, "forward", check_forward(candidate, each));
    if (each.kind != DataKind::kHugeLogits)
      emit(each, "gradients", check_gradients(candidate, each));
    if (index % 4 == 0) emit(each, "layer", check_layer(candidate, each));
    OperatorCase normal = each;
    normal.kind = DataKind::kNormal;
    emit(normal, "invariants", invariants_at(normal, index));
    ++step_;
    beat("conformance");
  }

  int64_t checks() const { return checks_; }
  void emit_agreement() const { worst_.emit(one_); }

 private:
  void emit(const OperatorCase& each, const char* part, const Checks& found) {
    for (const Check& check : found) {
      if (!plan_.wants(op_of(check.id))) continue;
      const std::string where = check.ok ? ""
                                         : "; configuration " + to_string(each.config) + ", seed " +
                                               std::to_string(each.seed);
      one_.emitter.check({.case_id = one_.id,
                          .id = check.id,
                          .ok = check.ok,
                          .code = check.code,
                          .detail = check.detail + where,
                          .err = check.err,
                          .tol = check.tol});
      worst_.take(check);
      ++checks_;
    }
    beat(part);
  }

  /// Invariants run on few configurations: each tries many inputs.
  Checks invariants_at(const OperatorCase& each, int64_t index) {
    OperatorCase twice_window = each;  // S = 2w, with more than one selection block to choose from
    twice_window.config = {};
    twice_window.config.window = twice_window.config.tokens / 2;
    if (index != 0 && index != kCornerCases - 1) return {};
    return check_invariants(plan_.candidate, index == 0 ? twice_window : each,
                            [this](const char* name) { beat(name); });
  }

  void beat(const char* part) {
    one_.emitter.beat({.case_id = one_.id,
                       .step = step_,
                       .of = steps_,
                       .at = part,
                       .mem_mib = peak_memory_mib(one_.device)});
  }

  const PhaseCase& one_;
  const ConformancePlan& plan_;
  int64_t steps_, step_ = 0, checks_ = 0;
  WorstAgreement worst_;
};

/// What the switches ask for must be what the layer runs, in every type.
void check_paths(const PhaseCase& one, const ConformancePlan& plan) {
  for (at::ScalarType type : plan.types) {
    OperatorCase each{.config = sample_config(one.seed(), kCornerCases - 1),
                      .type = type,
                      .device = one.device,
                      .seed = one.seed(),
                      .name = "path"};
    const nsa::NsaOutputs out =
        plan.candidate.layer(to_nsa(inputs_of(each)), to_nsa(each.config), {});
    one.emitter.check(path_check(one, out.ran, nsa::to_string(one.options.effective().sel),
                                 "sel_attn/" + dtype_name(type)));
  }
}

}  // namespace

std::string run_operator_conformance(const PhaseCase& one) {
  const ConformancePlan plan = read_conformance_plan(one);
  check_paths(one, plan);
  at::set_num_threads(1);  // tensors are tiny: a second thread costs more than it gives
  ConformanceRun run(one, plan);
  for (at::ScalarType type : plan.types) {
    for (int64_t index = 0; index < plan.configs; ++index) {
      const DataKind kind = kind_of(index);
      run.configuration(
          {.config = sample_config(one.seed(), index),
           .kind = kind,
           .type = type,
           .device = one.device,
           .seed = one.seed() + static_cast<uint64_t>(index),
           .layout = layout_of(index),
           .name = "c" + std::to_string(index) + "_" + std::string(data_kind_name(kind))},
          index);
    }
  }
  run.emit_agreement();
  return run.checks() > 0 ? "" : "no check ran";
}

}  // namespace suites

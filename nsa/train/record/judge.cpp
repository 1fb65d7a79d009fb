#include "nsa/train/record/judge.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <numbers>
#include <span>

#include "nsa/train/record/bucket_report.h"
#include "nsa/train/record/loader_report.h"
#include "nsa/train/record/loss_report.h"

namespace nsa::train {
namespace {

using Trace = std::vector<StepRecord>;
constexpr const char* kStuckMetric = "STUCK_METRIC";
constexpr int64_t kTail = 20;           ///< losses behind loss.last20_nat
constexpr double kEtaSteps = 50000;     ///< of the long run that the rate is projected to
constexpr int64_t kQuarters = 8;        ///< steps of which quarters can be compared
constexpr double kRandomMargin = 0.05;  ///< nat below ln V that random tokens cannot reach
constexpr double kSpreadFloor =
    1e-7;  ///< gates whose deviation over tokens is below this do not vary

/// The steps that trained on something: others have neither loss nor gradient.
Trace steps_with_targets(const Trace& trace) {
  Trace found;
  std::ranges::copy_if(trace, std::back_inserter(found), &StepRecord::has_targets);
  return found;
}

/// Mean over the targets of the last steps; over the steps where a number of targets is not known.
double tail_mean(const Trace& trace) {
  const std::span tail(trace.end() - kTail, trace.end());
  const bool known = std::ranges::all_of(tail, [](const auto& r) { return r.targets > 0; });
  double sum = 0, weights = 0;
  for (const StepRecord& r : tail) {
    // Equal numbers weigh exactly 1.
    const double weight =
        known ? static_cast<double>(r.targets) / static_cast<double>(tail.front().targets) : 1.0;
    sum += weight * r.loss;
    weights += weight;
  }
  return sum / weights;
}

/// Learning rate that the rows consumed so far demand, by the schedule that was in force. Written
/// apart from Schedule::at (half-angle form, and the step counted from rows) so that an error in
/// one is not repeated in the other.
double wanted_lr(const TrainOptions& o, int64_t row_groups, const StepRecord& r) {
  const double updates =
      static_cast<double>(r.rows) / static_cast<double>(o.batch * o.accum * row_groups);
  const auto warmup = static_cast<double>(o.warmup);
  const auto steps = static_cast<double>(r.schedule_steps > 0 ? r.schedule_steps : o.whole_run());
  if (updates <= warmup) return o.lr / warmup * updates;
  const double half = std::cos(0.5 * std::numbers::pi * (updates - warmup) / (steps - warmup));
  return o.min_lr + (o.lr - o.min_lr) * half * half;
}

Check check_lr(const TrainOptions& options, int64_t row_groups, const Trace& trace) {
  Check check{"lr_trace", "LR_TRACE", "", true, 0, 1e-9 * options.lr};
  for (const StepRecord& r : trace) {
    const double want = wanted_lr(options, row_groups, r);
    const double error = std::abs(r.lr - want);
    if (!(error <= check.error)) check.error = error;
    if (!(error <= check.tolerance) && check.ok) {
      check.ok = false;
      check.detail = "step " + std::to_string(r.step) + " applied " + std::to_string(r.lr) +
                     ", the schedule demands " + std::to_string(want);
    }
  }
  return check;
}

Check check_floor(const RunFacts& facts, double last20) {
  const double floor = std::log(static_cast<double>(facts.vocab)) - kRandomMargin;
  return {"loss_floor",
          "LOSS_TOO_GOOD",
          "mean of the last 20 losses on fresh random tokens: " + std::to_string(last20) +
              " nat, possible is >= " + std::to_string(floor),
          last20 >= floor,
          last20,
          floor};
}

/// Passes if `get` takes at least two values over the trace.
Check check_varies(const std::string& id, const std::string& what, const Trace& trace,
                   const std::function<double(const StepRecord&)>& get) {
  const auto [low, high] = std::minmax_element(
      trace.begin(), trace.end(), [&](const auto& a, const auto& b) { return get(a) < get(b); });
  const double range = get(*high) - get(*low);
  return {id,
          kStuckMetric,
          what + " runs from " + std::to_string(get(*low)) + " to " + std::to_string(get(*high)),
          range > 0,
          range,
          0};
}

/// One check a stage: every backend that ran is the one asked for. A backward pass that a backend
/// lacks is recorded with its reason and no replacement of what was asked for.
std::vector<Check> check_paths(const std::vector<PathRow>& paths) {
  std::vector<Check> checks;
  for (const PathRow& row : paths) {
    const std::string id = "path/" + row.stage;
    auto found =
        std::find_if(checks.begin(), checks.end(), [&](const Check& c) { return c.id == id; });
    if (found == checks.end())
      found = checks.insert(checks.end(), Check{id, "PATH_PROOF", "", true, 0, 0});
    Check& check = *found;
    const bool known_lack = row.stage.ends_with(".backward") && !row.reason.empty();
    const bool as_asked = row.requested.empty() || row.requested == kAutoBackend ||
                          row.requested == row.ran || known_lack;
    check.ok = check.ok && as_asked;
    check.detail += (check.detail.empty() ? "" : "; ") + std::string("requested ") +
                    (row.requested.empty() ? row.ran : row.requested) + ", ran " + row.ran + " " +
                    std::to_string(row.count) + " times" +
                    (row.reason.empty() ? "" : " (" + row.reason + ")");
  }
  return checks;
}

/// Largest peak of the last quarter of the steps over that of the first: above 1, memory grows.
double memory_growth(const Trace& trace) {
  const auto quarter = static_cast<std::ptrdiff_t>(trace.size() / 4);
  const auto peak = [](auto begin, auto end) {
    return std::max_element(begin, end,
                            [](const auto& a, const auto& b) { return a.peak_mib < b.peak_mib; })
        ->peak_mib;
  };
  return peak(trace.end() - quarter, trace.end()) / peak(trace.begin(), trace.begin() + quarter);
}

/// Share of one stage in the wall time of all steps but the first, in percent.
double stage_share(const Trace& trace, double StepRecord::* stage) {
  double part = 0, whole = 0;
  for (auto it = trace.begin() + 1; it != trace.end(); ++it) {
    part += (*it).*stage;
    whole += it->step_ms;
  }
  return 100 * part / whole;
}

double extreme(const Trace& trace, const std::function<double(const StepRecord&)>& get,
               bool largest) {
  double value = get(trace.front());
  for (const StepRecord& r : trace)
    value = largest ? std::max(value, get(r)) : std::min(value, get(r));
  return value;
}

Finding finding_of(const Check& check) {
  const auto text = [&](const char* cause, const char* action) {
    return Finding{check.code, check.detail, check.id, cause, action};
  };
  if (check.code == "LOSS_TOO_GOOD")
    return text(
        "the model sees the token it is asked to predict: label shift missing, or attention to the "
        "future",
        "check the label shift of the loss, then the causality of every attention branch");
  if (check.code == "LR_TRACE")
    return text("the schedule counts something else than optimizer steps",
                "count warm-up and decay in optimizer steps, not in micro-batches");
  if (check.code == "PATH_PROOF")
    return text("the backend asked for does not apply here",
                "look at the reason of the record; unset the switch, or change shape or type");
  if (check.code == "BUCKET_MISMATCH")
    return text("the Reducer was given another cap, or rebuilt its buckets by another rule",
                "look at the table of buckets beside the request");
  if (check.code == "LOADER_STALL")
    return {check.code, check.detail, "loader.stall_ratio",
            "batches are read slower than they are used",
            "warm up (NSA_FWE_WARMUP_BATCHES), read ahead (NSA_FWE_PREFETCH, NSA_FWE_Q), or look "
            "at the storage"};
  if (check.code == kDiverged)
    return text("the steps are too large: the weights left the region in which they learn",
                "lower lr, lengthen warmup, or clip gradients (clip_norm)");
  if (check.code == "DATA_SUBSTITUTED")
    return text("another source of tokens stands where the named corpus should",
                "look at what opens the data; nothing may stand in for a corpus");
  if (check.code == kStuckMetric)
    return text(
        "the quantity is not computed where it exists (gradients already cleared, dead gate)",
        "look where the quantity is read, and whether its parameters receive gradients");
  return text("the model learns less than the bound asks for",
              "compare the loss curve with an earlier run");
}

/// Adds figures one by one; without steps they are empty with one reason.
class Figures {
 public:
  Figures(std::vector<Figure>& out, const Trace& trace, std::string reason)
      : out_(out), trace_(trace), reason_(std::move(reason)) {}

  void add(const char* name, const char* unit, int64_t needed_steps,
           const std::function<double()>& value) {
    const auto have = static_cast<int64_t>(trace_.size());
    if (have >= needed_steps) {
      out_.push_back({name, unit, value(), ""});
    } else {
      out_.push_back({name, unit, std::nullopt,
                      "needs " + std::to_string(needed_steps) + " steps, " + std::to_string(have) +
                          " done" + (reason_.empty() ? "" : ": " + reason_)});
    }
  }

 private:
  std::vector<Figure>& out_;
  const Trace& trace_;
  std::string reason_;
};

/// False if all tokens of every step were the same one, as gates need not differ then.
bool have_comparable_gates(const Trace& trace) {
  return std::ranges::any_of(trace, [](const StepRecord& r) {
    return r.gate.layer_spread_min != std::numeric_limits<double>::infinity();
  });
}

Check check_gates(const Trace& trace) {
  const double spread =
      extreme(trace, [](const auto& r) { return r.gate.layer_spread_min; }, false);
  return {"stuck.gate",
          kStuckMetric,
          "smallest deviation of gate outputs over tokens, any layer and step: " +
              std::to_string(spread),
          spread > kSpreadFloor,
          spread,
          kSpreadFloor};
}

std::vector<Check> run_checks(const TrainOptions& options, const RunFacts& facts,
                              const Trace& trace) {
  std::vector<Check> checks;
  if (!facts.substitute.empty())
    checks.push_back({"data_source", "DATA_SUBSTITUTED",
                      options.data + " was asked for, " + facts.substitute + " was there", false, 0,
                      0});
  if (trace.empty()) return checks;
  checks.push_back(check_lr(options, facts.row_groups(), trace));
  const Trace learned = steps_with_targets(trace);
  const auto steps = static_cast<int64_t>(learned.size());
  if (steps >= kTail && options.is_synthetic())
    checks.push_back(check_floor(facts, tail_mean(learned)));
  if (steps > 0) checks.push_back(check_divergence(facts, learned));
  if (steps >= 2) {
    checks.push_back(
        check_varies("stuck.loss", "loss", learned, [](const auto& r) { return r.loss; }));
    checks.push_back(check_varies("stuck.grad_norm", "gradient norm", learned,
                                  [](const auto& r) { return r.grad_norm; }));
  }
  if (facts.has_gates && have_comparable_gates(trace)) checks.push_back(check_gates(trace));
  if (facts.ranks > 1 && facts.stopped.empty() && options.shard != "full")
    checks.push_back(check_buckets(options.reducer, facts));
  if (facts.loader.batches > 0) checks.push_back(check_loader(facts.loader, trace));
  const std::vector<Check> paths = check_paths(facts.paths);
  checks.insert(checks.end(), paths.begin(), paths.end());
  return checks;
}

/// Why figures of loss and gradient lack steps: as for all others, or those without targets.
std::string reason_for_fewer(const Trace& trace, const Trace& learned, const std::string& stopped) {
  const size_t idle = trace.size() - learned.size();
  if (idle == 0) return stopped;
  return std::to_string(idle) + " more had no target" + (stopped.empty() ? "" : "; " + stopped);
}

}  // namespace

Judgement judge(const TrainOptions& options, const RunFacts& facts, const Trace& trace) {
  Judgement result;
  result.checks = run_checks(options, facts, trace);
  const bool diverged = std::ranges::any_of(result.checks, is_divergence);
  for (const Check& check : result.checks)
    if (!check.ok && !(diverged && check.code == kStuckMetric))  // stuck because it diverged
      result.findings.push_back(finding_of(check));

  const auto passed = [&](const std::string& id) {
    for (const Check& check : result.checks)
      if (check.id == id) return check.ok ? 1.0 : 0.0;
    return 0.0;
  };
  const auto largest = [&](auto get) { return extreme(trace, get, true); };
  const auto smallest = [&](auto get) { return extreme(trace, get, false); };
  const Trace learned = steps_with_targets(trace);
  Figures figures(result.figures, trace, facts.stopped);
  Figures losses(result.figures, learned, reason_for_fewer(trace, learned, facts.stopped));
  figures.add("steps.done_count", "count", 0, [&] { return static_cast<double>(trace.size()); });
  figures.add("steps.missing_count", "count", 0, [&] {
    return static_cast<double>(options.steps) - static_cast<double>(trace.size());
  });
  figures.add("data.real_bool", "bool", 0, [&] { return facts.real_data ? 1.0 : 0.0; });
  figures.add("step.tokens_count", "count", 1,
              [&] { return static_cast<double>(facts.step_tokens); });
  figures.add("eta.steps_count", "count", 0, [&] { return kEtaSteps; });
  losses.add("loss.first_nat", "nat", 1, [&] { return learned.front().loss; });
  losses.add("loss.min_nat", "nat", 1,
             [&] { return extreme(learned, [](const auto& r) { return r.loss; }, false); });
  losses.add("loss.last20_nat", "nat", kTail, [&] { return tail_mean(learned); });
  for (Figure& figure : validation_figures(facts, trace))
    result.figures.push_back(std::move(figure));
  figures.add("memory.peak_mib", "mib", 1, [&] { return facts.peak_mib; });
  result.figures.insert(result.figures.end(), facts.memory.begin(), facts.memory.end());
  figures.add("memory.growth_ratio", "ratio", kQuarters, [&] { return memory_growth(trace); });
  for (const auto& [name, stage] : {std::pair{"stage.forward_pct", &StepRecord::forward_ms},
                                    {"stage.backward_pct", &StepRecord::backward_ms},
                                    {"stage.optimizer_pct", &StepRecord::optimizer_ms}})
    if (facts.by_graph)
      result.figures.push_back({name, "pct", std::nullopt, "a step is one launch of a CUDA graph"});
    else
      figures.add(name, "pct", 2, [&, part = stage] { return stage_share(trace, part); });
  if (facts.has_gates) {
    figures.add("gate.entropy_min_nat", "nat", 1,
                [&] { return smallest([](const auto& r) { return r.gate.layer_entropy_min; }); });
    figures.add("gate.entropy_max_nat", "nat", 1,
                [&] { return largest([](const auto& r) { return r.gate.layer_entropy_max; }); });
    if (trace.empty() || have_comparable_gates(trace))
      figures.add("gate.varies_bool", "bool", 1, [&] { return passed("stuck.gate"); });
    else
      result.figures.push_back({"gate.varies_bool", "bool", std::nullopt,
                                "no step had two different input tokens to compare gates of"});
  } else {
    for (const auto& [name, unit] : {std::pair{"gate.entropy_min_nat", "nat"},
                                     {"gate.entropy_max_nat", "nat"},
                                     {"gate.varies_bool", "bool"}})
      result.figures.push_back({name, unit, std::nullopt, "the model is dense: it has no gates"});
  }
  losses.add("grad.norm_varies_bool", "bool", 2, [&] { return passed("stuck.grad_norm"); });
  losses.add("grad.zero_count", "count", 1, [&] {
    return static_cast<double>(
        std::ranges::count_if(learned, [](const auto& r) { return !(r.grad_norm > 0); }));
  });
  figures.add("lr.trace_matches_bool", "bool", 1, [&] { return passed("lr_trace"); });
  figures.add("ddp.ranks_count", "count", 1, [&] { return static_cast<double>(facts.ranks); });
  for (Figure& figure : loader_figures(facts.loader, trace))
    result.figures.push_back(std::move(figure));
  return result;
}

}  // namespace nsa::train

// Memory and time of forward and backward against S, a selection backend at a time: rows against
// the oracle first, a mismatch leaves no samples.
#include <ATen/ATen.h>

#include <algorithm>

#include "suites/conformance/case_inputs.h"
#include "suites/conformance/convert.h"
#include "suites/instrument/dilation.h"
#include "suites/instrument/event_timer.h"
#include "suites/instrument/facts.h"
#include "suites/phases/attention_case.h"
#include "suites/phases/attention_under_test.h"
#include "suites/phases/correctness/row_judge.h"

namespace suites {
namespace {

using at::Tensor;
const std::string kWithheld = "withheld: not valid, output mismatch in ";

struct MemoryPlan {
  std::vector<int64_t> lengths;
  std::vector<nsa::SelBackend> backends;
  CaseConfig config;  ///< of one length; tokens changes
  at::ScalarType type = at::kFloat;
  int64_t samples = 3, rows = 64;
  AttentionFunction attention;
  uint64_t seed = 0;
};

/// What one backend took at one length.
struct Point {
  int64_t tokens = 0;
  double forward_mib = 0, peak_mib = 0;  ///< above what was there before the call
  double forward_ms = 0, backward_ms = 0;
};

MemoryPlan read_memory_plan(const PhaseCase& one) {
  MemoryPlan plan;
  plan.lengths = one.args.get_ints("S", {1024, 2048, 4096, 8192, 16384, 32768, 65536}, 1);
  if (!std::is_sorted(plan.lengths.begin(), plan.lengths.end()))
    throw ConfigError("args.S of attn_memory must be ascending");
  plan.backends = sel_backends(one.args, "backends", {"gather", "packed", "varlen", "masked"});
  plan.config = attention_sizes(one.args, 12, 2, 64);
  plan.config.batch = one.args.get_int("B", 1, 1);
  plan.samples = one.args.get_int("samples", 3, 1);
  plan.rows = one.args.get_int("rows", 64, 1);
  plan.type = input_type(one);
  plan.attention = attention_under_test(one.args);
  plan.seed = one.seed();
  return plan;
}

nsa::NsaOptions options_for(nsa::SelBackend backend) {
  nsa::NsaOptions options;
  options.sel = backend;
  options.keep_scores = false;
  return options;
}

/// One forward and backward with the memory it took.
Point measure_memory(const MemoryPlan& plan, const CaseConfig& config, const DenseInputs& leaves,
                     nsa::SelBackend backend, at::Device device) {
  synchronize(device);
  reset_peak_memory(device);
  const double before = peak_memory_mib(device);
  Point point{.tokens = config.tokens};
  const Tensor o = plan.attention(to_nsa(leaves), to_nsa(config), options_for(backend)).o;
  synchronize(device);
  point.forward_mib = peak_memory_mib(device) - before;
  o.backward(at::ones_like(o));
  synchronize(device);
  point.peak_mib = peak_memory_mib(device) - before;
  return point;
}

void clear_gradients(DenseInputs& leaves) {
  for (auto& [name, tensor] : named_inputs(leaves)) tensor->mutable_grad() = Tensor();
}

class Sweep {
 public:
  Sweep(const PhaseCase& one, MemoryPlan plan) : one_(one), plan_(std::move(plan)) {}

  std::string run() {
    points_.resize(plan_.backends.size());
    for (const nsa::SelBackend backend : plan_.backends) {
      CaseConfig config = plan_.config;
      config.tokens = plan_.lengths.back();
      const std::string failed = emit_checks(
          one_,
          judge_gradients(one_, config, {.backend = backend}, plan_.type, nsa::to_string(backend)));
      if (!failed.empty()) return kWithheld + failed;
    }
    for (const int64_t tokens : plan_.lengths) {
      CaseConfig config = plan_.config;
      config.tokens = tokens;
      const DenseInputs inputs = draw_inputs(config, plan_.type, one_.device, plan_.seed);
      const std::vector<int64_t> positions = judged_positions(config, plan_.rows, plan_.seed);
      RowJudge judge(config, queries_at(inputs, positions), positions);
      for (size_t b = 0; b < plan_.backends.size(); ++b) {
        const std::string failed = judge_backend(config, inputs, judge, positions, b);
        if (!failed.empty()) return kWithheld + failed;
        measure(config, inputs, b);
      }
    }
    emit_figures();
    return "";
  }

 private:
  std::string name(size_t b) const { return nsa::to_string(plan_.backends[b]); }

  std::string judge_backend(const CaseConfig& config, const DenseInputs& inputs, RowJudge& judge,
                            const std::vector<int64_t>& positions, size_t b) {
    const at::NoGradGuard no_grad;
    const nsa::NsaOutputs out =
        plan_.attention(to_nsa(inputs), to_nsa(config), options_for(plan_.backends[b]));
    const std::string where = name(b) + "_s" + std::to_string(config.tokens);
    one_.emitter.check(path_check(one_, out.ran, name(b), where));
    return emit_checks(one_, judge.judge(rows_of(out, positions), where));
  }

  void measure(const CaseConfig& config, const DenseInputs& inputs, size_t b) {
    DenseInputs leaves = as_leaves(inputs);
    Point point = measure_memory(plan_, config, leaves, plan_.backends[b], one_.device);
    EventTimer timer(one_.device);
    std::vector<double> forward, backward;
    const bool largest = config.tokens == plan_.lengths.back();
    for (int64_t i = 0; i < plan_.samples; ++i) {
      clear_gradients(leaves);
      Tensor o;
      forward.push_back(time_calls_ms(
          timer,
          [&] {
            o = plan_.attention(to_nsa(leaves), to_nsa(config), options_for(plan_.backends[b])).o;
          },
          1));
      const Tensor d_o = at::ones_like(o);
      backward.push_back(time_calls_ms(timer, [&] { o.backward(d_o); }, 1));
      const std::string suffix = largest ? "" : ".s" + std::to_string(config.tokens);
      sample(name(b) + ".forward" + suffix, forward.back(), i);
      sample(name(b) + ".backward" + suffix, backward.back(), i);
    }
    point.forward_ms = median(forward);
    point.backward_ms = median(backward);
    points_[b].push_back(point);
    one_.emitter.beat({.case_id = one_.id,
                       .step = ++step_,
                       .of = static_cast<int64_t>(plan_.lengths.size() * plan_.backends.size()),
                       .at = name(b) + " S=" + std::to_string(config.tokens),
                       .mem_mib = peak_memory_mib(one_.device)});
  }

  /// Series "BACKEND.forward.sS"; without ".sS" at the largest length.
  void sample(const std::string& series, double ms, int64_t round) {
    one_.emitter.sample({.case_id = one_.id,
                         .series = series,
                         .value = ms,
                         .unit = "ms",
                         .round = round,
                         .order = 0});
  }

  void metric(const std::string& what, double value, const char* unit) {
    one_.emitter.metric({.case_id = one_.id, .name = what, .value = value, .unit = unit});
  }

  /// How much faster than S the peak grew, worst of the last two steps: 1 is linear, 2 at a
  /// doubling quadratic.
  static double growth(const std::vector<Point>& points) {
    double worst = 0;
    const size_t first = points.size() > 2 ? points.size() - 2 : 1;
    for (size_t i = first; i < points.size(); ++i)
      worst = std::max(worst, points[i].peak_mib / points[i - 1].peak_mib *
                                  static_cast<double>(points[i - 1].tokens) /
                                  static_cast<double>(points[i].tokens));
    return worst;
  }

  void emit_figures() {
    nlohmann::json rows = nlohmann::json::array();
    for (size_t b = 0; b < points_.size(); ++b) {
      const Point& last = points_[b].back();
      metric(name(b) + ".peak_mib", last.peak_mib, "mib");
      metric(name(b) + ".per_1k_tokens_mib", per_1k_tokens(last), "mib");
      if (points_[b].size() > 1) metric(name(b) + ".growth_ratio", growth(points_[b]), "ratio");
      for (const Point& p : points_[b])
        rows.push_back({name(b), p.tokens, p.forward_ms, p.backward_ms, p.forward_mib, p.peak_mib,
                        per_1k_tokens(p) * 1024 / 1000});
    }
    one_.emitter.table({.case_id = one_.id,
                        .id = "memory",
                        .title = "Time and memory of one attention call against S",
                        .columns = {"backend", "S", "forward ms", "backward ms", "forward MiB",
                                    "peak MiB", "KiB a token"},
                        .rows = rows});
  }

  double per_1k_tokens(const Point& p) const {
    return p.peak_mib * 1000 / static_cast<double>(p.tokens * plan_.config.batch);
  }

  const PhaseCase& one_;
  MemoryPlan plan_;
  std::vector<std::vector<Point>> points_;
  int64_t step_ = 0;
};

}  // namespace

std::string run_attn_memory(const PhaseCase& one) {
  if (one.in.mode != "time")
    throw ConfigError("mode of attn_memory must be time, got '" + one.in.mode + "'");
  return Sweep(one, read_memory_plan(one)).run();
}

}  // namespace suites

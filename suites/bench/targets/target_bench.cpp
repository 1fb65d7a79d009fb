#include "suites/bench/targets/target_bench.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>
#include <cstdio>
#include <limits>

#include "suites/bench/bench_report.h"
#include "suites/bench/sampled_time.h"
#include "suites/bench/targets/case_row.h"
#include "suites/bench/targets/dense_attention_bench.h"
#include "suites/conformance/checks/operator_checks.h"
#include "suites/conformance/convert.h"
#include "suites/faults/variants.h"
#include "suites/phases/target_call.h"
#ifdef NSA_WITH_CUDA
#include "suites/instrument/cupti/captured_call.h"
#endif
#include "suites/instrument/ceilings.h"
#include "suites/instrument/event_timer.h"
#include "suites/instrument/facts.h"
#include "suites/phases/correctness/row_judge.h"
#include "suites/phases/profiles/step_work.h"

namespace suites {
namespace {

using at::Tensor;
using nlohmann::json;

constexpr int64_t kGradientTokens = 200;
constexpr double kSlowMs = 2000;  ///< a pass that takes longer is not repeated

/// Intermediate results of the kernels, and output and gradients of the call that is timed: a model
/// keeps less of the branches for its backward pass.
Candidate timed_call() {
  Candidate c = plain_candidate();
  c.whole = true;
  c.runs.clear();
  c.layer = [](const nsa::NsaInputs& in, const nsa::NsaConfig& config,
               const nsa::NsaOptions& asked) {
    nsa::NsaOptions options = cuda_kernels();
    options.block_idx = asked.block_idx;
    nsa::NsaOutputs out;
    {
      const at::NoGradGuard no_grad;
      out = nsa::nsa_attention(in, config, options);
    }
    options.keep_branches = false;
    out.o = nsa::nsa_attention(in, config, options).o;
    return out;
  };
  return c;
}

class Bench {
 public:
  Bench(const TargetCase& one, at::Device device, const TargetBenchOptions& options, json& row)
      : one_(one), device_(device), options_(options), row_(row) {}

  void run() {
    judge_gradients();
    calls_ = TargetCall(one_.config, device_, options_.seed);
    judge_rows();
    if (!row_["problems"].empty()) return;
    time_ours();
    if (options_.dense) time_dense();
  }

 private:
  void judge_gradients() {
    CaseConfig small = one_.config;  // every KV head does the same: one is judged
    small.batch = 1;
    small.num_heads = small.group_size();
    small.num_kv_heads = 1;
    small.tokens = std::min(small.tokens, kGradientTokens);
    const OperatorCase drawn{.config = small,
                             .type = at::kBFloat16,
                             .device = device_,
                             .seed = options_.seed,
                             .name = one_.id};
    for (const Variant& variant : variants())
      if (variant.kernels) note_checks(check_gradients(variant.make(), drawn), row_);
    OperatorCase timed = drawn;
    timed.name += "/in_training";
    note_checks(check_gradients(timed_call(), timed), row_);
  }

  void judge_rows() {
    const Tensor timed = calls_.forward_in_training().o.detach();
    const at::NoGradGuard no_grad;
    nsa::NsaOutputs out = calls_.forward();
    out.o = timed;
    const auto positions = judged_positions(one_.config, options_.judged_rows, options_.seed);
    RowJudge judge(one_.config, queries_at(calls_.inputs(), positions), positions);
    note_checks(judge.judge(rows_of(out, positions), one_.id), row_);
    note_selection(judge.selection(), row_);
  }

  void time_ours() {
    const Tensor d_o = at::randn_like(calls_.forward_in_training().o);
    const std::vector<Tensor> first = note_memory(d_o);
    const nsa::NsaOutputs out = calls_.forward_in_training();
    const auto backward = [&] { return calls_.backward(out.o, d_o); };
    EventTimer timer(device_);
    std::vector<Tensor> again;
    const double once = time_calls_ms(timer, [&] { again = backward(); }, 1);
    note_paths(out.record->rows(), row_);
    bool same = true;
    for (size_t i = 0; i < first.size(); ++i) same = same && at::equal(first[i], again[i]);
    row_["gradients_repeat"] = same;
    if (!same) row_["problems"].push_back("two backward passes gave different bits");
    note_launches(backward);
    const OperatorWork work = operator_work(
        to_nsa(one_.config), {.batch = one_.config.batch, .seq_len = one_.config.tokens});
    pass("forward", one_.forward, sample([&] { calls_.forward_in_training(); }), work.forward);
    if (once > kSlowMs) {
      row_["problems"].push_back("backward took " + std::to_string(once) + " ms once");
      return;
    }
    pass("backward", one_.backward, sample([&] { backward(); }), work.backward);
  }

  /// What a forward call enqueues, and what a backward one adds; and what the host takes to do it.
  template <class Backward>
  void note_launches(const Backward& backward) {
#ifdef NSA_WITH_CUDA
    if (device_.is_cuda()) {
      // Leaves of their own: those of a live graph belong to the stream it was made on.
      const TargetCall fresh(one_.config, device_, options_.seed);
      nsa::NsaOutputs out;
      const Launches forward = CapturedCall([&] { out = fresh.forward_in_training(); }).launches();
      out = {};
      std::vector<Tensor> gradients;
      const Launches both = CapturedCall([&] {
                              out = fresh.forward_in_training();
                              gradients = fresh.backward(out.o, out.o);
                            }).launches();
      row_["launches"] = {{"forward", forward.total()},
                          {"backward", both.total() - forward.total()},
                          {"both", launches_json(both)}};
    }
#endif
    row_["host_us"] = {{"forward", host_us([&] { calls_.forward_in_training(); })},
                       {"backward", host_us(backward)}};
  }

  /// Least time of the host in one of 10 calls that wait for nothing, us: of 5 times.
  double host_us(const std::function<void()>& work) const {
    using Clock = std::chrono::steady_clock;
    constexpr int kCalls = 10;
    double least = std::numeric_limits<double>::infinity();
    for (int time = 0; time < 5; ++time) {
      synchronize(device_);
      const Clock::time_point begin = Clock::now();
      for (int i = 0; i < kCalls; ++i) work();
      const std::chrono::duration<double, std::micro> taken = Clock::now() - begin;
      least = std::min(least, taken.count() / kCalls);
    }
    synchronize(device_);
    return least;
  }

  SampledTime sample(const std::function<void()>& work) const {
    return sample_time(device_, work, options_.seconds, {.alone = true, .cold = options_.cold});
  }

  /// What a forward and backward need beyond inputs, output and gradients, as in training: only the
  /// output is held in between, and the graph goes with the backward pass.
  std::vector<Tensor> note_memory(const Tensor& d_o) {
    synchronize(device_);
    reset_peak_memory(device_);
    const double before = peak_memory_mib(device_);
    const auto peak_mib = [&] { return peak_memory_mib(device_) - before; };
    const Tensor o = calls_.forward_in_training().o;
    double tensors = static_cast<double>(o.nbytes());
    const double mib = static_cast<double>(1 << 20), output = tensors / mib;
    for (const Tensor& leaf : calls_.leaves()) tensors += static_cast<double>(leaf.nbytes());
    const double given = tensors / mib;
    row_["forward_extra_mib"] = peak_mib() - output;
    std::vector<Tensor> gradients = calls_.backward(o, d_o, /*keeps_graph=*/false);
    const double extra = peak_mib() - given;  // the output and the gradients of the leaves
    row_["extra_mib"] = extra;
    row_["extra_ratio"] = extra / given;
    return gradients;
  }

  /// `work`: what the pass has to do at least, by formula.
  void pass(const char* name, const TargetFigures& known, const SampledTime& time,
            const harness::trace::AnalyticalWork& work) {
    json& out = row_[name];
    out["hot"] = time_json(time.hot);
    out["alone"] = time_json(time.alone);
    if (time.sm_mhz) out["sm_mhz"] = *time.sm_mhz;
    if (!time.clock_events.empty()) out["clock_events"] = time.clock_events;
    if (!time.cold.empty()) out["cold"] = time_json(time.cold);
    note_figures(known, out);
    const double ms = out["hot"]["median_ms"];
    out["tflop_s"] = work.flops / ms * 1e-9;
    out["gb_s"] = work.bytes / ms * 1e-6;
  }

  void time_dense() {
    for (const DenseLibrary library : {DenseLibrary::kCudnn, DenseLibrary::kFlash}) {
      json& out = row_["dense"][to_string(library)];
      try {
        const Tensor o = dense_causal(calls_.inputs(), library);
        const Tensor d_o = at::randn_like(o);
        const std::vector<Tensor> wrt(calls_.leaves().begin(), calls_.leaves().begin() + 3);
        out["forward"] =
            time_json(sample_time(device_, [&] { dense_causal(calls_.inputs(), library); },
                                  options_.seconds / 2, {})
                          .hot);
        out["backward"] =
            time_json(sample_time(device_, [&] { torch::autograd::grad({o}, wrt, {d_o}, true); },
                                  options_.seconds / 2, {})
                          .hot);
      } catch (const c10::Error& error) {
        out["refused"] = error.what_without_backtrace();
      }
    }
  }

  const TargetCase& one_;
  at::Device device_;
  const TargetBenchOptions& options_;
  TargetCall calls_;
  json& row_;
};

}  // namespace

json run_target_bench(at::Device device, const std::vector<TargetCase>& cases,
                      const TargetBenchOptions& options) {
  json report = bench_report(device, options.seed);
  const harness::trace::Ceilings ceilings = measure_ceilings(device, at::kBFloat16);
  report["ceilings"] = {{"tflop_s", ceilings.tflop_s}, {"gb_s", ceilings.gb_s}};
  for (const TargetCase& one : cases) {
    if (one.id.find(options.filter) == std::string::npos) continue;
    report["cases"].push_back(run_case(one.id, one.config, device,
                                       [&](json& row) { Bench(one, device, options, row).run(); }));
    std::fprintf(stderr, "%s", target_bench_text({{"cases", {report["cases"].back()}}}).c_str());
    options.keep(report);
  }
  require_cases(report, options.filter);
  return report;
}

}  // namespace suites

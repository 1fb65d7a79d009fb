#include "suites/bench/targets/roofline_bench.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "nsa/ops/attention/cpu_attention.h"
#include "nsa/ops/gate/gate.h"
#include "suites/bench/sampled_time.h"
#include "suites/bench/targets/case_row.h"
#include "suites/conformance/convert.h"
#include "suites/phases/profiles/step_work.h"
#include "suites/phases/target_call.h"
#include "suites/phases/timing/cpu_arms.h"

namespace suites {
namespace {

using at::Tensor;
using nlohmann::json;

/// Times of `calls` calls behind one that is not timed.
json time_of(int64_t calls, const std::function<void()>& work) {
  std::vector<double> samples;
  for (int64_t i = -1; i < calls; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - begin;
    if (i >= 0) samples.push_back(ms.count());
  }
  return time_json(samples);
}

json rate_of(double amount, json time) {
  time["rate_giga_s"] = amount / (time.at("median_ms").get<double>() * 1e6);
  return time;
}

/// GFLOP/s of products, GB/s of a copy (bytes read and written).
json measure_peaks(int64_t calls) {
  const at::NoGradGuard no_grad;
  constexpr int64_t kSide = 2048, kBytes = int64_t{1} << 28;
  json peaks;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const Tensor a = at::randn({kSide, kSide}, type), b = at::randn({kSide, kSide}, type);
    Tensor out = at::empty({kSide, kSide}, type);
    peaks["product_" + dtype_name(type)] =
        rate_of(2.0 * kSide * kSide * kSide, time_of(calls, [&] { at::mm_out(out, a, b); }));
  }
  const Tensor from = at::zeros({kBytes}, at::kByte);
  Tensor to = at::empty({kBytes}, at::kByte);
  peaks["copy"] = rate_of(2.0 * kBytes, time_of(calls, [&] { to.copy_(from); }));
  return peaks;
}

class Roofline {
 public:
  Roofline(const TargetCase& one, at::ScalarType type, uint64_t seed, int64_t calls,
           double peak_giga_s, json& row)
      : config_(to_nsa(one.config)),
        tokens_(one.config.tokens),
        call_(one.config, at::kCPU, seed, type, cpu_kernels()),
        calls_(calls),
        peak_(peak_giga_s),
        row_(row) {}

  void run() {
    const at::NoGradGuard no_grad;
    const nsa::NsaOutputs out = call_.forward();
    const nsa::NsaInputs in = to_nsa(call_.inputs());
    const Tensor q = in.q.detach(), k = in.k_sel.detach(), v = in.v_sel.detach();
    const auto keys = count_keys(config_, tokens_);
    const nsa::KeyMask ranges{nsa::KeyMask::kRanges, 0, 0, 1, out.ranges};
    const nsa::KeyMask blocks = nsa::compressed_mask(config_), window = nsa::window_mask(config_);
    const Tensor d_o = at::ones_like(out.o);

    branch("compressed", q, out.k_cmp, out.v_cmp, blocks, keys.compressed, out.o_cmp, out.lse_cmp);
    stage("compressed+scores+selection", "forward", forward_work(keys.compressed), [&] {
      nsa::cpu_attention(q, out.k_cmp, out.v_cmp, blocks, config_.cmp_scale(), "cmp_attn",
                         &config_);
    });
    branch("selected", q, k, v, ranges, keys.selected, out.o_sel, out.lse_sel);
    branch("window", q, k, v, window, keys.window, out.o_win, out.lse_win);
    gates(out, in.gate_logits.detach(), d_o);
    row_["whole"]["forward"] = time_of(calls_, [&] { call_.forward(); });
    const at::AutoGradMode recording(true);
    const Tensor o = call_.forward().o;
    row_["whole"]["backward"] = time_of(calls_, [&] { call_.backward(o, d_o); });
  }

 private:
  double forward_work(double keys) const {
    return 2 * static_cast<double>(config_.num_heads * (config_.qk_head_dim + config_.v_head_dim)) *
           keys;
  }
  double backward_work(double keys) const {
    return static_cast<double>(config_.num_heads *
                               (6 * config_.qk_head_dim + 4 * config_.v_head_dim)) *
           keys;
  }

  void stage(const char* name, const char* pass, double flop, const std::function<void()>& work) {
    json time = rate_of(flop, time_of(calls_, work));
    time["of_product_pct"] = 100 * time.at("rate_giga_s").get<double>() / peak_;
    std::fprintf(stderr, "  %-28s %-8s %8.1f ms %6.1f GFLOP/s, %4.1f %% of the product\n", name,
                 pass, time.at("median_ms").get<double>(), time.at("rate_giga_s").get<double>(),
                 time.at("of_product_pct").get<double>());
    row_["stages"][name][pass] = std::move(time);
  }

  void branch(const char* name, const Tensor& q, const Tensor& k, const Tensor& v,
              const nsa::KeyMask& mask, double keys, const Tensor& want, const Tensor& lse) {
    const double scale = config_.sel_scale();
    Tensor out;
    stage(name, "forward", forward_work(keys),
          [&] { out = nsa::cpu_attention(q, k, v, mask, scale, name).out; });
    // The compressed branch of a call works on whole rows of logits, so its sums differ in order.
    if (mask.kind != nsa::KeyMask::kVisibleBlocks) {
      row_["checks_run"] = row_["checks_run"].get<int>() + 1;
      if (!at::equal(out, want))
        row_["problems"].push_back(std::string(name) + ": other bits than in the whole call");
    }
    const nsa::CpuBackwardInputs in{q, k, v, lse, at::ones_like(want)};
    stage(name, "backward", backward_work(keys),
          [&] { nsa::cpu_attention_gradients(in, mask, scale, name); });
  }

  void gates(const nsa::NsaOutputs& out, const Tensor& logits, const Tensor& d_o) {
    const double values = static_cast<double>(out.o.numel());
    stage("gates", "forward", 5 * values, [&] {
      nsa::gate_combine(out.o_cmp, out.o_sel, out.o_win, nsa::gate_activate(logits, config_.gate));
    });
    const at::AutoGradMode recording(true);
    std::vector<Tensor> leaves;
    for (const Tensor* x : {&out.o_cmp, &out.o_sel, &out.o_win, &logits})
      leaves.push_back(x->detach().requires_grad_(true));
    const Tensor o = nsa::gate_combine(leaves[0], leaves[1], leaves[2],
                                       nsa::gate_activate(leaves[3], config_.gate));
    stage("gates", "backward", 11 * values,
          [&] { torch::autograd::grad({o}, leaves, {d_o}, /*retain_graph=*/true); });
  }

  nsa::NsaConfig config_;
  int64_t tokens_;
  TargetCall call_;
  int64_t calls_;
  double peak_;
  json& row_;
};

}  // namespace

json run_roofline_bench(const TargetBenchOptions& options, int64_t calls) {
  json report = bench_report(at::kCPU, options.seed);
  report["threads"] = at::get_num_threads();
  report["peaks"] = measure_peaks(calls);
  const double peak = report["peaks"]["product_fp32"]["rate_giga_s"];
  for (const auto& [name, time] : report["peaks"].items())
    std::fprintf(stderr, "%-14s %8.1f giga a second\n", name.c_str(),
                 time.at("rate_giga_s").get<double>());
  for (const TargetCase& one : cpu_cases()) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const std::string id = one.id + "_" + dtype_name(type);
      if (id.find(options.filter) == std::string::npos) continue;
      std::fprintf(stderr, "%s\n", id.c_str());
      report["cases"].push_back(run_case(id, one.config, at::kCPU, [&](json& row) {
        row["dtype"] = dtype_name(type);
        const std::string obstacle = cpu_arm_obstacle(CpuWork::kTraining, one.config, type, {});
        if (!obstacle.empty()) throw std::runtime_error("not run: " + obstacle);
        Roofline(one, type, options.seed, calls, peak, row).run();
      }));
      for (const json& problem : report["cases"].back().at("problems"))
        std::fprintf(stderr, "  %s\n", problem.get<std::string>().c_str());
      options.keep(report);
    }
  }
  require_cases(report, options.filter);
  return report;
}

}  // namespace suites

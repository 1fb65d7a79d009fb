#include "suites/bench/targets/cpu_bench.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "suites/bench/sampled_time.h"
#include "suites/bench/targets/case_row.h"
#include "suites/bench/targets/cpu_decode_bench.h"
#include "suites/bench/targets/target_call.h"
#include "suites/conformance/checks/operator_checks.h"
#include "suites/faults/variants.h"
#include "suites/phases/correctness/row_judge.h"

namespace suites {
namespace {

using at::Tensor;
using nlohmann::json;

constexpr int64_t kCpuGradientTokens = 200;

double ms_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

/// Times of one arm, ms.
struct Passes {
  std::vector<double> forward, backward, both;

  void add(double forward_ms, double backward_ms) {
    forward.push_back(forward_ms);
    backward.push_back(backward_ms);
    both.push_back(forward_ms + backward_ms);
  }
  json times() const {
    return {{"forward", time_json(forward)},
            {"backward", time_json(backward)},
            {"both", time_json(both)}};
  }
};

/// Dense causal attention of LibTorch on the leaves of a call, [B, S, heads, dim] each, in `type`.
class DenseArm {
 public:
  DenseArm(const TargetCall& call, at::ScalarType type) {
    for (size_t i = 0; i < 3; ++i)
      leaves_.push_back(
          call.leaves()[i].detach().to(type).transpose(1, 2).contiguous().requires_grad_(true));
  }
  void time(Passes& passes) const {
    Tensor o;
    const double forward = ms_of([&] {
      o = at::scaled_dot_product_attention(leaves_[0], leaves_[1], leaves_[2], /*attn_mask=*/{},
                                           /*dropout_p=*/0, /*is_causal=*/true,
                                           /*scale=*/std::nullopt, /*enable_gqa=*/true);
    });
    const Tensor d_o = at::ones_like(o);
    passes.add(forward, ms_of([&] { torch::autograd::grad({o}, leaves_, {d_o}); }));
  }

 private:
  std::vector<Tensor> leaves_;
};

class CpuBench {
 public:
  CpuBench(const TargetCase& one, at::ScalarType type, const TargetBenchOptions& options,
           int64_t pairs, json& row)
      : one_(one), type_(type), options_(options), pairs_(pairs), row_(row) {}

  void run() {
    row_["dtype"] = dtype_name(type_);
    judge_gradients();
    call_ = TargetCall(one_.config, at::kCPU, options_.seed, type_, cpu_kernels());
    judge_rows();
    if (row_["problems"].empty()) time_pairs();
  }

 private:
  void judge_gradients() {
    CaseConfig small = one_.config;  // every KV head does the same: one is judged
    small.num_heads = small.group_size();
    small.num_kv_heads = 1;
    small.tokens = std::min(small.tokens, kCpuGradientTokens);
    const OperatorCase drawn{
        .config = small, .type = type_, .seed = options_.seed, .name = one_.id};
    for (const Variant& variant : variants())
      if (variant.name == "cpu_selection")
        note_checks(check_gradients(variant.make(), drawn), row_);
  }

  void judge_rows() {
    const at::NoGradGuard no_grad;
    const auto positions = judged_positions(one_.config, options_.judged_rows, options_.seed);
    RowJudge judge(one_.config, queries_at(call_.inputs(), positions), positions);
    const nsa::NsaOutputs out = call_.forward();
    note_checks(judge.judge(rows_of(out, positions), one_.id), row_);
    note_selection(judge.selection(), row_);
    note_paths(out.record->rows(), row_, "cpu");
  }

  void time_ours(Passes& passes) const {
    nsa::NsaOutputs out;
    const double forward = ms_of([&] { out = call_.forward(); });
    const Tensor d_o = at::ones_like(out.o);
    passes.add(forward, ms_of([&] { call_.backward(out.o, d_o); }));
  }

  void time_pairs() {
    std::vector<at::ScalarType> dense_types{type_};
    if (type_ != at::kFloat) dense_types.push_back(at::kFloat);
    std::vector<DenseArm> arms;
    if (options_.dense)
      for (const at::ScalarType type : dense_types) arms.emplace_back(call_, type);
    Passes ours;
    std::vector<Passes> dense(arms.size());
    std::vector<std::vector<double>> ratios(arms.size());
    // Each arm is first as often as last; one round warms up.
    for (int64_t round = -1; round < pairs_; ++round) {
      if (round == 0) ours = {}, dense.assign(arms.size(), {});
      if (round % 2 == 0) time_ours(ours);
      for (size_t i = 0; i < arms.size(); ++i) arms[i].time(dense[i]);
      if (round % 2 != 0) time_ours(ours);
      std::fprintf(stderr, "%s %s: pair %lld of %lld\r", one_.id.c_str(), dtype_name(type_).c_str(),
                   static_cast<long long>(round + 1), static_cast<long long>(pairs_));
    }
    row_["ours"] = ours.times();
    for (size_t i = 0; i < arms.size(); ++i) {
      std::vector<double> ratio;
      for (size_t pair = 0; pair < ours.both.size(); ++pair)
        ratio.push_back(dense[i].both[pair] / ours.both[pair]);
      const json median = time_json(ratio);
      json& out = row_["dense"][dtype_name(dense_types[i])];
      out = dense[i].times();
      out["ratio"] = {{"n", median["n"]},
                      {"median", median["median_ms"]},
                      {"lo", median["lo_ms"]},
                      {"hi", median["hi_ms"]},
                      {"samples", median["samples_ms"]}};
    }
  }

  const TargetCase& one_;
  at::ScalarType type_;
  const TargetBenchOptions& options_;
  int64_t pairs_;
  json& row_;
  TargetCall call_;
};

std::string interval(const json& of, const char* middle, const char* low, const char* high) {
  const auto number = [&](const char* key) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3g", of.at(key).get<double>());
    return of.at(key).is_null() ? std::string("-") : std::string(text);
  };
  return number(middle) +
         (of.at(low).is_null() ? "" : " [" + number(low) + ", " + number(high) + "]");
}

void print_row(const json& row) {
  std::fprintf(stderr, "%s: %d checks, %d problems\n", row.at("id").get<std::string>().c_str(),
               row.at("checks_run").get<int>(), static_cast<int>(row.at("problems").size()));
  for (const json& problem : row.at("problems"))
    std::fprintf(stderr, "  %s\n", problem.get<std::string>().c_str());
  const auto line = [](const std::string& name, const json& arm) {
    std::fprintf(stderr, "  %-12s", name.c_str());
    for (const char* pass : {"forward", "backward"})
      std::fprintf(stderr, " %s %s ms", pass,
                   interval(arm.at(pass), "median_ms", "lo_ms", "hi_ms").c_str());
    if (arm.contains("ratio"))
      std::fprintf(stderr, ", takes %s times ours",
                   interval(arm.at("ratio"), "median", "lo", "hi").c_str());
    std::fprintf(stderr, "\n");
  };
  if (!row.contains("ours")) return;
  line("ours", row.at("ours"));
  if (row.contains("dense"))
    for (const auto& [type, arm] : row.at("dense").items()) line("dense " + type, arm);
}

}  // namespace

json run_cpu_bench(const TargetBenchOptions& options, int64_t pairs) {
  json report = bench_report(at::kCPU, options.seed);
  report["threads"] = at::get_num_threads();
  for (const TargetCase& one : cpu_cases()) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const std::string id = one.id + "_" + dtype_name(type);
      if (id.find(options.filter) == std::string::npos) continue;
      report["cases"].push_back(run_case(id, one.config, at::kCPU, [&](json& row) {
        CpuBench(one, type, options, pairs, row).run();
      }));
      print_row(report["cases"].back());
      options.keep(report);
    }
  }
  add_cpu_decode_cases(options, pairs, report);
  require_cases(report, options.filter);
  return report;
}

}  // namespace suites

#include "suites/bench/targets/cpu_bench.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "suites/bench/targets/case_row.h"
#include "suites/bench/targets/cpu_decode_bench.h"
#include "suites/bench/targets/pair_times.h"
#include "suites/phases/correctness/row_judge.h"
#include "suites/phases/target_call.h"
#include "suites/phases/timing/cpu_arms.h"

namespace suites {
namespace {

using at::Tensor;
using nlohmann::json;

/// Pairs that take longer are written to the report one by one.
constexpr double kLongPairMs = 5000;

double ms_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

std::vector<std::string> names_of(const std::vector<at::ScalarType>& types) {
  std::vector<std::string> names;
  for (const at::ScalarType type : types) names.push_back(dtype_name(type));
  return names;
}

class CpuBench {
 public:
  CpuBench(const TargetCase& one, at::ScalarType type, const TargetBenchOptions& options,
           const CpuCase& in)
      : one_(one),
        type_(type),
        options_(options),
        in_(in),
        times_(names_of(dense_types(type)), {"forward", "backward"}) {}

  void run(json& row) {
    note_checks(judge_cpu_gradients(one_.config, type_, options_.seed, one_.id), row);
    call_ = TargetCall(one_.config, at::kCPU, options_.seed, type_, cpu_kernels());
    judge_rows(row);
    if (row["problems"].empty()) time_pairs(row);
  }

 private:
  void judge_rows(json& row) {
    const at::NoGradGuard no_grad;
    const auto positions = judged_positions(one_.config, options_.judged_rows, options_.seed);
    RowJudge judge(one_.config, queries_at(call_.inputs(), positions), positions);
    const nsa::NsaOutputs out = call_.forward();
    note_checks(judge.judge(rows_of(out, positions), one_.id), row);
    note_selection(judge.selection(), row);
    note_paths(out.record->rows(), row, "cpu");
  }

  std::vector<double> time_ours() const {
    nsa::NsaOutputs out;
    const double forward = ms_of([&] { out = call_.forward(); });
    const Tensor d_o = at::ones_like(out.o);
    return {forward, ms_of([&] { call_.backward(out.o, d_o); })};
  }

  static std::vector<double> time_dense(const DenseArm& arm) {
    Tensor o;
    const double forward = ms_of([&] { o = arm.forward(); });
    const Tensor d_o = at::ones_like(o);
    return {forward, ms_of([&] { arm.backward(o, d_o); })};
  }

  void time_pairs(json& row) {
    if (in_.earlier != nullptr) times_.resume(*in_.earlier);
    std::vector<DenseArm> arms;
    for (const at::ScalarType type : dense_types(type_))
      arms.emplace_back(call_.leaves()[0], call_.leaves()[1], call_.leaves()[2], type);
    // Each arm is first as often as last; one round warms up.
    const auto first = static_cast<int64_t>(times_.count());
    for (int64_t round = first - 1; round < in_.pairs; ++round) {
      std::vector<double> ours;
      std::vector<std::vector<double>> dense;
      const bool ours_first = (round + 2) % 2 == 0;
      const double ms = ms_of([&] {
        if (ours_first) ours = time_ours();
        for (const DenseArm& arm : arms) dense.push_back(time_dense(arm));
        if (!ours_first) ours = time_ours();
      });
      if (round < first) continue;
      times_.add(ours, dense);
      std::fprintf(stderr, "  pair %lld of %lld, %.1f s\n", static_cast<long long>(round + 1),
                   static_cast<long long>(in_.pairs), ms / 1000);
      if (ms <= kLongPairMs) continue;
      times_.write(row);
      in_.keep(row);
    }
    times_.write(row);
  }

  const TargetCase& one_;
  at::ScalarType type_;
  const TargetBenchOptions& options_;
  const CpuCase& in_;
  PairTimes times_;
  TargetCall call_;
};

std::string interval(const json& of, const char* middle, const char* low, const char* high) {
  const auto number = [&](const char* key) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3g", of.at(key).get<double>());
    return std::string(text);
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
    for (const char* pass : {"forward", "backward", "step"})
      if (arm.contains(pass))
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

/// The cases of a report one after the other, those of an earlier one in their places.
class CpuReport {
 public:
  CpuReport(const TargetBenchOptions& options, int64_t pairs)
      : options_(options), pairs_(pairs), report_(bench_report(at::kCPU, options.seed)) {
    report_["threads"] = at::get_num_threads();
    if (!options.earlier.is_null()) require_same_setting(options.earlier, report_);
  }

  template <typename Run>
  void add(CpuWork work, const TargetCase& one, at::ScalarType type, const Run& run) {
    const std::string id =
        (work == CpuWork::kDecode ? "decode_" : "") + one.id + "_" + dtype_name(type);
    const json* earlier = find_case(options_.earlier, id, to_string(one.config));
    const bool wanted = id.find(options_.filter) != std::string::npos;
    if (wanted) ++wanted_;
    if (earlier != nullptr && (!wanted || is_complete(*earlier, static_cast<size_t>(pairs_)))) {
      report_["cases"].push_back(*earlier);
      return;
    }
    if (!wanted) return;
    std::fprintf(stderr, "%s\n", id.c_str());
    const CpuCase in{pairs_, earlier, [&](const json& row) {
                       json whole = report_;
                       whole["cases"].push_back(row);
                       keep(whole);
                     }};
    report_["cases"].push_back(run_case(id, one.config, at::kCPU, [&](json& row) {
      row["dtype"] = dtype_name(type);
      const std::string obstacle = cpu_arm_obstacle(work, one.config, type, dense_types(type));
      if (!obstacle.empty()) {
        row["not_run"] = obstacle;
        throw std::runtime_error("not run: " + obstacle);
      }
      run(in, row);
    }));
    print_row(report_["cases"].back());
    keep(report_);
  }

  json finish() const {
    if (wanted_ == 0)
      throw std::invalid_argument("--case " + options_.filter + ": no case has that in its name");
    return report_;
  }

 private:
  /// The report so far, with the earlier rows that come later.
  void keep(json whole) const {
    if (options_.earlier.contains("cases"))
      for (const json& row : options_.earlier.at("cases"))
        if (find_case(whole, row.at("id"), row.at("config")) == nullptr)
          whole["cases"].push_back(row);
    options_.keep(whole);
  }

  const TargetBenchOptions& options_;
  int64_t pairs_;
  json report_;
  int64_t wanted_ = 0;
};

}  // namespace

json run_cpu_bench(const TargetBenchOptions& options, int64_t pairs) {
  CpuReport report(options, pairs);
  for (const CpuWork work : {CpuWork::kTraining, CpuWork::kDecode})
    for (const TargetCase& one : cpu_cases())
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
        report.add(work, one, type, [&](const CpuCase& in, json& row) {
          if (work == CpuWork::kDecode)
            run_cpu_decode(one.config, type, options.seed, in, row);
          else
            CpuBench(one, type, options, in).run(row);
        });
  return report.finish();
}

}  // namespace suites

#include "suites/bench/targets/cpu_decode_bench.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <chrono>
#include <cstdio>

#include "nsa/decode/cache/layer_cache.h"
#include "nsa/layer/nsa_inputs.h"
#include "suites/bench/sampled_time.h"
#include "suites/bench/targets/case_row.h"
#include "suites/bench/targets/target_case.h"
#include "suites/conformance/convert.h"
#include "suites/phases/attention_case.h"
#include "suites/phases/correctness/row_judge.h"

namespace suites {
namespace {

using at::Tensor;
using nlohmann::json;

constexpr int64_t kJudgedCpuSteps = 32;
constexpr int64_t kStepsOfPair = 8;  ///< one step is too short for the clock's noise

template <typename Work>
double ms_of_one(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < kStepsOfPair; ++i) work();
  const std::chrono::duration<double, std::milli> all = std::chrono::steady_clock::now() - begin;
  return all.count() / static_cast<double>(kStepsOfPair);
}

class CpuDecodeBench {
 public:
  CpuDecodeBench(const TargetCase& one, at::ScalarType type, uint64_t seed, int64_t pairs,
                 json& row)
      : config_(one.config),
        context_(one.config.tokens),
        pairs_(pairs),
        row_(row),
        tokens_(draw_inputs(with_steps(), type, at::kCPU, seed)),
        cache_(to_nsa(config_), 1, context_ + kJudgedCpuSteps + kStepsOfPair * (pairs + 1),
               tokens_.q.options()) {
    options_.keep_scores = false;
    options_.sel = nsa::SelBackend::kCpu;
    options_.cmp = options_.win = nsa::BranchBackend::kCpu;
  }

  void run() {
    const at::NoGradGuard no_grad;
    cache_.load_context(0, to_nsa(narrow_tokens(tokens_, 0, context_)));
    judge();
    if (row_["problems"].empty()) time();
  }

 private:
  CaseConfig with_steps() const {
    CaseConfig c = config_;
    c.tokens = context_ + kJudgedCpuSteps;
    return c;
  }

  void judge() {
    std::vector<CandidateRows> rows;
    std::vector<int64_t> positions;
    for (int64_t t = context_; t < context_ + kJudgedCpuSteps; ++t) {
      const nsa::DecodeOutputs out = cache_.step(to_nsa(narrow_tokens(tokens_, t, 1)), options_);
      rows.push_back({out.q_rot, {}, out.block_idx, out.o_cmp, out.o_sel, out.o_win, out.o});
      positions.push_back(t);
      if (t == context_) note_paths(out.ran, row_, "cpu");
    }
    CandidateRows all = joined(rows);
    all.k_cmp = cache_.blocks(0).first.unsqueeze(0);
    RowJudge judge(with_steps(), queries_at(tokens_, positions), positions);
    note_checks(judge.judge(all, "cpu_decode"), row_);
    note_selection(judge.selection(), row_);
  }

  void time() {
    const nsa::NsaInputs token = to_nsa(narrow_tokens(tokens_, context_, 1));
    const auto by_head = [&](const Tensor& x, int64_t first, int64_t count) {
      return x.narrow(1, first, count).transpose(1, 2).contiguous();
    };
    const Tensor q = by_head(token.q, 0, 1), k = by_head(tokens_.k_sel, 0, context_),
                 v = by_head(tokens_.v_sel, 0, context_);
    std::vector<double> ours, dense, ratio;
    for (int64_t pair = -1; pair < pairs_; ++pair) {
      const double step = ms_of_one([&] { cache_.step(token, options_); });
      const double whole = ms_of_one([&] {
        at::scaled_dot_product_attention(q, k, v, {}, 0, false, std::nullopt, /*enable_gqa=*/true);
      });
      if (pair < 0) continue;  // warms up
      ours.push_back(step), dense.push_back(whole), ratio.push_back(whole / step);
    }
    row_["step"] = {{"ours", time_json(ours)}, {"dense", time_json(dense)}};
    const json found = time_json(ratio);
    row_["step"]["ratio"] = {{"n", found["n"]},
                             {"median", found["median_ms"]},
                             {"lo", found["lo_ms"]},
                             {"hi", found["hi_ms"]},
                             {"samples", found["samples_ms"]}};
    std::fprintf(stderr, "  step %.3f ms, dense %.3f ms, takes %.3g times ours\n",
                 row_["step"]["ours"]["median_ms"].get<double>(),
                 row_["step"]["dense"]["median_ms"].get<double>(),
                 found["median_ms"].get<double>());
  }

  CaseConfig config_;
  int64_t context_, pairs_;
  json& row_;
  DenseInputs tokens_;
  nsa::LayerCache cache_;
  nsa::NsaOptions options_;
};

}  // namespace

void add_cpu_decode_cases(const TargetBenchOptions& options, int64_t pairs, json& report) {
  for (const TargetCase& one : cpu_cases()) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const std::string id = "decode_" + one.id + "_" + dtype_name(type);
      if (id.find(options.filter) == std::string::npos) continue;
      report["cases"].push_back(run_case(id, one.config, at::kCPU, [&](json& row) {
        row["dtype"] = dtype_name(type);
        std::fprintf(stderr, "%s\n", id.c_str());
        CpuDecodeBench(one, type, options.seed, pairs, row).run();
      }));
      options.keep(report);
    }
  }
}

}  // namespace suites

#include "suites/bench/targets/cpu_decode_bench.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <chrono>

#include "nsa/decode/cache/layer_cache.h"
#include "nsa/layer/nsa_inputs.h"
#include "suites/bench/targets/case_row.h"
#include "suites/bench/targets/pair_times.h"
#include "suites/conformance/convert.h"
#include "suites/phases/attention_case.h"
#include "suites/phases/correctness/row_judge.h"
#include "suites/phases/timing/cpu_arms.h"

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
  CpuDecodeBench(const CaseConfig& config, at::ScalarType type, uint64_t seed, const CpuCase& in,
                 json& row)
      : config_(config),
        context_(config.tokens),
        type_(type),
        in_(in),
        row_(row),
        tokens_(draw_inputs(with_steps(), type, at::kCPU, seed)),
        cache_(to_nsa(config_), 1, context_ + kJudgedCpuSteps + kStepsOfPair * (in.pairs + 1),
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
    std::vector<DenseArm> dense;
    std::vector<std::string> names;
    for (const at::ScalarType type : dense_types(type_)) {
      dense.emplace_back(token.q, tokens_.k_sel.narrow(1, 0, context_),
                         tokens_.v_sel.narrow(1, 0, context_), type, /*causal=*/false);
      names.push_back(dtype_name(type));
    }
    PairTimes times(names, {"step"});
    if (in_.earlier != nullptr) times.resume(*in_.earlier);
    const auto first = static_cast<int64_t>(times.count());
    for (int64_t pair = first - 1; pair < in_.pairs; ++pair) {
      const double step = ms_of_one([&] { cache_.step(token, options_); });
      std::vector<std::vector<double>> whole;
      for (const DenseArm& arm : dense) whole.push_back({ms_of_one([&] { arm.forward(); })});
      if (pair >= first) times.add({step}, whole);  // the first warms up
    }
    times.write(row_);
  }

  CaseConfig config_;
  int64_t context_;
  at::ScalarType type_;
  const CpuCase& in_;
  json& row_;
  DenseInputs tokens_;
  nsa::LayerCache cache_;
  nsa::NsaOptions options_;
};

}  // namespace

void run_cpu_decode(const CaseConfig& config, at::ScalarType type, uint64_t seed, const CpuCase& in,
                    json& row) {
  CpuDecodeBench(config, type, seed, in, row).run();
}

}  // namespace suites

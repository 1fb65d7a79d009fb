#include "suites/bench/targets/decode_target.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cstdio>
#include <optional>
#include <stdexcept>

#include "nsa/decode/cache/layer_cache.h"
#include "nsa/layer/nsa_inputs.h"
#include "suites/bench/bench_report.h"
#include "suites/bench/sampled_time.h"
#include "suites/bench/targets/case_row.h"
#include "suites/bench/targets/target_case.h"
#include "suites/conformance/convert.h"
#ifdef NSA_WITH_CUDA
#include "suites/instrument/cupti/captured_call.h"
#endif
#include "suites/instrument/facts.h"
#include "suites/phases/attention_case.h"
#include "suites/phases/correctness/row_judge.h"

namespace suites {
namespace {

using at::Tensor;
using nlohmann::json;

/// Rows of 4 KV heads: 64 of them; see RowJudge on few rows.
constexpr int64_t kJudgedTokens = 16;
constexpr int64_t kStepsInRow = 20;
/// More than the judged steps and every replay that is timed.
constexpr int64_t kMostSteps = 1024;

class DecodeBench {
 public:
  DecodeBench(const DecodeCase& one, at::Device device, uint64_t seed, json& row)
      : one_(one), device_(device), seed_(seed), row_(row) {}

  void run() {
    const at::NoGradGuard no_grad;
    prepare();
    judge();
    if (row_["problems"].empty()) time();
  }

 private:
  int64_t context() const { return one_.config.tokens; }
  int64_t capacity() const { return context() + kMostSteps * one_.new_tokens; }

  /// Caches of equal sequences: each has memory of its own.
  void prepare() {
    CaseConfig drawn = one_.config;
    drawn.batch = 1;
    drawn.tokens = context() + kJudgedTokens;
    tokens_ = draw_inputs(drawn, at::kBFloat16, device_, seed_);
    cache_.emplace(to_nsa(one_.config), one_.config.batch, capacity(), tokens_.q.options());
    for (int64_t b = 0; b < one_.config.batch; ++b)
      cache_->load_context(b, to_nsa(narrow_tokens(tokens_, 0, context())));
    cache_->reserve(capacity());
    options_.keep_scores = false;
    if (device_.is_cpu()) return;
    options_.sel = nsa::SelBackend::kFused;
    options_.cmp = options_.win = nsa::BranchBackend::kFused;
    options_.strict_backend = true;
  }

  /// The tokens of a step, the same for every sequence.
  nsa::NsaInputs tokens_at(int64_t position) const {
    const DenseInputs own = narrow_tokens(tokens_, position, one_.new_tokens);
    return nsa::map_tokens(to_nsa(own), [&](const Tensor& x) {
      std::vector<int64_t> sizes = x.sizes().vec();
      sizes[0] = one_.config.batch;
      return x.expand(sizes).contiguous();
    });
  }

  void judge() {
    std::vector<CandidateRows> rows;
    std::vector<int64_t> positions;
    for (int64_t t = context(); t < context() + kJudgedTokens; t += one_.new_tokens) {
      const nsa::DecodeOutputs out = cache_->step(tokens_at(t), options_);
      const auto first = [](const Tensor& x) { return x.narrow(0, 0, 1); };
      if (!at::equal(out.o, first(out.o).expand_as(out.o)))
        row_["problems"].push_back("equal sequences of a batch got different outputs");
      rows.push_back({first(out.q_rot),
                      {},
                      first(out.block_idx),
                      first(out.o_cmp),
                      first(out.o_sel),
                      first(out.o_win),
                      first(out.o)});
      for (int64_t i = 0; i < one_.new_tokens; ++i) positions.push_back(t + i);
      bytes_ = static_cast<double>(out.reads.sum().item<int64_t>() * one_.config.num_kv_heads) /
               static_cast<double>(out.reads.size(2)) *
               static_cast<double>(2 * (one_.config.qk_head_dim + one_.config.v_head_dim));
      if (t == context()) note_paths(out.ran, row_);
    }
    CandidateRows all = joined(rows);
    all.k_cmp = cache_->blocks(0).first.unsqueeze(0);
    CaseConfig judged = one_.config;
    judged.batch = 1;
    judged.tokens = context() + kJudgedTokens;
    RowJudge judge(judged, queries_at(tokens_, positions), positions);
    note_checks(judge.judge(all, one_.id), row_);
    note_selection(judge.selection(), row_);
  }

  void time() {
#ifdef NSA_WITH_CUDA
    if (!device_.is_cuda()) return;
    const nsa::NsaInputs tokens = tokens_at(context());
    nsa::DecodeOutputs out;
    const auto step = [&] { out = cache_->step(tokens, options_); };
    CapturedCall one(step), row([&] {
      for (int64_t i = 0; i < kStepsInRow; ++i) step();
    });
    row_["launches"] = {{"step", one.launches().total()}};
    SampledTime alone =
        sample_time(device_, [&] { replay(one, 1); }, 0, {.alone = true, .cold = true});
    SampledTime steps = sample_time(device_, [&] { replay(row, kStepsInRow); }, 0, {});
    for (double& ms : steps.hot) ms /= static_cast<double>(kStepsInRow);
    json& pass = row_["step"];
    pass["graph_of_1"] = time_json(alone.alone);
    pass["cold"] = time_json(alone.cold);
    pass["hot"] = time_json(steps.hot);
    note_figures(one_.step, pass);
    pass["gb_s"] = bytes_ / pass["hot"]["median_ms"].get<double>() * 1e-6;
#endif
  }

#ifdef NSA_WITH_CUDA
  void replay(CapturedCall& call, int64_t steps) {
    for (int64_t i = 0; i < steps; ++i) cache_->before_replay(one_.new_tokens);
    call.replay();
  }
#endif

  const DecodeCase& one_;
  at::Device device_;
  uint64_t seed_;
  DenseInputs tokens_;
  std::optional<nsa::LayerCache> cache_;
  nsa::NsaOptions options_;
  double bytes_ = 0;  ///< of keys and values that a step reads
  json& row_;
};

}  // namespace

json run_decode_bench(at::Device device, const TargetBenchOptions& options) {
  json report = bench_report(device, options.seed);
  for (const DecodeCase& one : decode_cases()) {
    if (one.id.find(options.filter) == std::string::npos) continue;
    report["cases"].push_back(run_case(one.id, one.config, device, [&](json& row) {
      DecodeBench(one, device, options.seed, row).run();
    }));
    std::fprintf(stderr, "%s", target_bench_text({{"cases", {report["cases"].back()}}}).c_str());
    options.keep(report);
  }
  require_cases(report, options.filter);
  return report;
}

}  // namespace suites

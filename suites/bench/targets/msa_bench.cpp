#include "suites/bench/targets/msa_bench.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <cstdio>
#include <functional>

#include "nsa/layer/msa/msa_attention.h"
#include "nsa/ops/common/oracle_util.h"
#include "nsa/reference/reference.h"
#include "suites/bench/sampled_time.h"
#include "suites/bench/targets/case_row.h"
#include "suites/bench/targets/dense_attention_bench.h"
#include "suites/compare/compare.h"
#include "suites/compare/selection.h"
#include "suites/instrument/event_timer.h"
#include "suites/instrument/facts.h"
#include "suites/phases/correctness/row_judge.h"

namespace suites {
namespace {

using at::Tensor;
using nlohmann::json;
namespace ref = nsa::reference;

constexpr double kSlowMs = 300;  ///< a pass of dense attention that takes longer has one sample
constexpr int64_t kJudgedTokens = 700, kJudgedTopN = 4;  // short: every block is the oracle's work

struct MsaInputs {
  std::array<Tensor, 3> leaves;  ///< q, k, v
  Tensor q_idx, k_idx;
};

MsaInputs draw_msa(const CaseConfig& c, at::Device device) {
  const auto options = at::TensorOptions(device).dtype(at::kBFloat16);
  const auto draw = [&](std::vector<int64_t> sizes) { return at::randn(sizes, options); };
  MsaInputs in{{draw({1, c.tokens, c.num_heads, c.qk_head_dim}),
                draw({1, c.tokens, c.num_kv_heads, c.qk_head_dim}),
                draw({1, c.tokens, c.num_kv_heads, c.v_head_dim})},
               draw({1, c.tokens, c.num_kv_heads, c.qk_head_dim}),
               draw({1, c.tokens, c.qk_head_dim})};
  for (Tensor& x : in.leaves) x.requires_grad_();
  return in;
}

nsa::IndexedAttention attend(const MsaInputs& in, const CaseConfig& c,
                             const nsa::NsaOptions& options) {
  return nsa::attend_by_index(in.leaves[0], in.leaves[1], in.leaves[2], in.q_idx, in.k_idx,
                              {.block_size = c.sel_block_size, .top_n = c.top_n}, options);
}

nsa::NsaOptions by_kernels(const Tensor& block_idx = {}) {
  nsa::NsaOptions options;
  options.sel = nsa::SelBackend::kFused;
  options.strict_backend = true;
  options.block_idx = block_idx;
  return options;
}

/// Products of an index are logits of attention over tokens: blocks of one key, one query head.
SelectionReport judge_choice(const Tensor& q_idx, const Tensor& k_idx, const Tensor& ids,
                             const Tensor& scores, const CaseConfig& c, const Tensor& positions) {
  SelectionShape shape{.block_size = 1,
                       .block_stride = 1,
                       .sel_block_size = c.sel_block_size,
                       .num_selected = c.top_n,
                       .num_initial = 0,
                       .num_local = 1};
  const Tensor keys = k_idx.unsqueeze(2).expand({-1, -1, q_idx.size(2), -1});
  const Tensor bound = selection_tie_bound(q_idx.cpu(), keys.cpu(), shape, positions);
  return accept_selection(ids.cpu(), scores.cpu(), bound, shape, /*exact_ties=*/false, positions);
}

std::vector<Tensor> in_order(const MsaInputs& in) { return {in.leaves.begin(), in.leaves.end()}; }

/// Of a short sequence and one KV head; every KV head does the same.
Checks check_short(CaseConfig c, at::Device device) {
  c.num_heads = c.group_size(), c.num_kv_heads = 1;
  c.tokens = kJudgedTokens, c.top_n = kJudgedTopN;
  const MsaInputs in = draw_msa(c, device);
  const nsa::IndexedAttention have = attend(in, c, by_kernels());
  const Tensor d_o = at::randn_like(have.o);
  nsa::NsaOptions gather;
  gather.block_idx = have.block_idx;
  const auto results = [&](const Tensor& o) {
    std::vector<Tensor> all = torch::autograd::grad({o}, in_order(in), {d_o});
    all.insert(all.begin(), o.detach());
    return all;
  };
  const std::vector<Tensor> ours = results(have.o), plain = results(attend(in, c, gather).o);
  const auto exact = [](const Tensor& x) {
    return nsa::ref_of<double>(x.detach().to(at::kCPU, at::kDouble));
  };
  const ref::MsaSizes sizes{.block_size = c.sel_block_size, .top_n = c.top_n};
  const auto ids = nsa::ref_of<int32_t>(have.block_idx.cpu());
  const auto q = exact(in.leaves[0]), k = exact(in.leaves[1]), v = exact(in.leaves[2]);
  const auto g = ref::msa_attention_backward(sizes, q, k, v, ids, exact(d_o));
  const std::array oracle{ref::msa_attention(sizes, q, k, v, ids).o, g.q, g.k, g.v};
  constexpr std::array<std::array<const char*, 2>, 4> kRules{
      {{"sel_attn", "o_sel"}, {"attn", "d_q"}, {"attn", "d_k"}, {"attn", "d_v"}}};
  Checks checks;
  for (size_t i = 0; i < oracle.size(); ++i)
    checks.push_back(make_check(
        std::string("oracle/msa/bf16/") + kRules[i][1],
        compare(ours[i].cpu(), nsa::to_aten(oracle[i], at::kDouble),
                tolerance(kRules[i][0], kRules[i][1], at::kBFloat16), {.plain = plain[i].cpu()})));
  const Tensor scores =
      nsa::to_aten(ref::msa_scores(sizes, exact(in.q_idx), exact(in.k_idx)), at::kDouble);
  const SelectionReport choice =
      judge_choice(in.q_idx, in.k_idx, have.block_idx, scores, c, at::arange(c.tokens));
  checks.push_back(
      make_check("oracle/msa/bf16/block_idx", choice.ok, code::kOracleMismatch, choice.text));
  return checks;
}

class MsaBench {
 public:
  MsaBench(const TargetCase& one, at::Device device, const TargetBenchOptions& options, json& row)
      : one_(one), device_(device), options_(options), row_(row) {}

  void run() {
    in_ = draw_msa(one_.config, device_);
    judge_rows();
    if (!row_["problems"].empty()) return;
    time_ours();
    if (options_.dense) time_dense();
  }

 private:
  /// Choice and output of drawn rows of the whole length, one after the other in fp64.
  void judge_rows() {
    const at::NoGradGuard no_grad;
    const CaseConfig& c = one_.config;
    const nsa::IndexedAttention have = attend(in_, c, by_kernels());
    note_paths(have.record->rows(), row_);
    const auto places = judged_positions(c, options_.judged_rows, options_.seed);
    const Tensor positions = at::tensor(places, at::kLong), index = positions.to(device_);
    const auto rows = [&](const Tensor& x) { return x.index_select(1, index); };
    const Tensor ids = rows(have.block_idx);
    const SelectionReport choice = judge_choice(rows(in_.q_idx), in_.k_idx, ids,
                                                exact_scores(rows(in_.q_idx), index), c, positions);
    note_selection(choice, row_);
    Checks checks{
        make_check(one_.id + "/block_idx", choice.ok, code::kOracleMismatch, choice.text)};
    std::vector<Tensor> exact, plain;
    for (size_t i = 0; i < places.size(); ++i) {
      const Tensor own = ids.select(1, static_cast<int64_t>(i));
      exact.push_back(attended_row(places[i], own, at::kDouble));
      plain.push_back(attended_row(places[i], own, at::kFloat).to(at::kBFloat16));
    }
    checks.push_back(
        make_check(one_.id + "/o", compare(rows(have.o).cpu(), at::stack(exact, 1).cpu(),
                                           tolerance("sel_attn", "o_sel", at::kBFloat16),
                                           {.plain = at::stack(plain, 1).cpu()})));
    note_checks(checks, row_);
  }

  /// q_idx of the rows [1, R, H, di] -> [1, R, H, blocks].
  Tensor exact_scores(const Tensor& q_idx, const Tensor& index) const {
    const int64_t block = one_.config.sel_block_size, blocks = one_.config.num_sel_blocks();
    const Tensor dots =
        at::matmul(q_idx.to(at::kDouble), in_.k_idx.to(at::kDouble).transpose(1, 2).unsqueeze(1)) /
        std::sqrt(static_cast<double>(q_idx.size(3)));
    const Tensor behind =
        at::arange(dots.size(-1), index.options()).unsqueeze(0) > index.unsqueeze(1);  // [R, S]
    return at::constant_pad_nd(
               dots.masked_fill(behind.unsqueeze(1), -std::numeric_limits<double>::infinity()),
               {0, blocks * block - dots.size(-1)}, -std::numeric_limits<double>::infinity())
        .unflatten(-1, {blocks, block})
        .amax(-1);
  }

  /// ids [1, H, n] -> [1, Hq, dv], computed in `type`; below fp64 probabilities are rounded to the
  /// inputs' type, as the plain computation does.
  Tensor attended_row(int64_t t, const Tensor& ids, at::ScalarType type) const {
    const CaseConfig& c = one_.config;
    std::vector<Tensor> heads;
    for (int64_t h = 0; h < c.num_kv_heads; ++h) {
      const Tensor own = ids[0][h];
      const Tensor tokens =
          (own.masked_select(own.ge(0)).to(at::kLong).unsqueeze(1) * c.sel_block_size +
           at::arange(c.sel_block_size, own.options().dtype(at::kLong)))
              .flatten();
      const Tensor seen = tokens.masked_select(tokens.le(t));
      const auto keys = [&](const Tensor& x) {
        return x[0].select(1, h).index_select(0, seen).to(type);
      };
      const Tensor q = in_.leaves[0][0][t].narrow(0, h * c.group_size(), c.group_size()).to(type) /
                       std::sqrt(static_cast<double>(c.qk_head_dim));
      Tensor p = at::softmax(at::matmul(q, keys(in_.leaves[1]).t()), -1);
      if (type != at::kDouble) p = p.to(at::kBFloat16).to(type);
      heads.push_back(p.matmul(keys(in_.leaves[2])));
    }
    return at::cat(heads).unsqueeze(0);
  }

  void time_ours() {
    const CaseConfig& c = one_.config;
    const nsa::IndexedAttention out = attend(in_, c, by_kernels());
    const Tensor d_o = at::randn_like(out.o);
    const std::vector<Tensor> leaves = in_order(in_);
    const nsa::NsaOptions given = by_kernels(out.block_idx);
    time("forward", [&] { attend(in_, c, by_kernels()); });
    time("given_blocks", [&] { attend(in_, c, given); });
    time("backward", [&] { torch::autograd::grad({out.o}, leaves, {d_o}, true); });
  }

  void time(const char* pass, const std::function<void()>& work) {
    const SampledTime sampled = sample_time(device_, work, options_.seconds, {});
    row_[pass]["hot"] = time_json(sampled.hot);
    if (sampled.sm_mhz) row_[pass]["sm_mhz"] = *sampled.sm_mhz;
    std::fprintf(stderr, "%-10s %-13s %.4g ms\n", one_.id.c_str(), pass,
                 row_[pass]["hot"]["median_ms"].get<double>());
  }

  void time_dense() {
    DenseInputs dense;
    dense.q = in_.leaves[0], dense.k_sel = in_.leaves[1], dense.v_sel = in_.leaves[2];
    EventTimer timer(device_);
    for (const DenseLibrary library : {DenseLibrary::kCudnn, DenseLibrary::kFlash}) {
      json& out = row_["dense"][to_string(library)];
      try {
        const Tensor o = dense_causal(dense, library), d_o = at::randn_like(o);
        const auto note = [&](const char* pass, const std::function<void()>& work) {
          work();  // the first call chooses and compiles
          const double once = time_calls_ms(timer, work, 1);
          out[pass] = time_json(once > kSlowMs ? std::vector<double>{once}
                                               : sample_time(device_, work, 0, {}).hot);
          std::fprintf(stderr, "%-10s %-5s %-8s %.4g ms\n", one_.id.c_str(),
                       to_string(library).c_str(), pass, out[pass]["median_ms"].get<double>());
        };
        note("forward", [&] { dense_causal(dense, library); });
        note("backward", [&] { torch::autograd::grad({o}, in_order(in_), {d_o}, true); });
      } catch (const c10::Error& error) {
        out["refused"] = error.what_without_backtrace();
      }
    }
  }

  const TargetCase& one_;
  at::Device device_;
  const TargetBenchOptions& options_;
  MsaInputs in_;
  json& row_;
};

std::vector<TargetCase> msa_cases() {
  CaseConfig c;
  c.num_heads = 64, c.num_kv_heads = 4;
  c.qk_head_dim = c.v_head_dim = 128;
  c.sel_block_size = 128, c.top_n = 16, c.n_initial = 0, c.n_local = 1;
  c.rope = RopeKind::kNone, c.gate = GateKind::kNone;
  std::vector<TargetCase> all;
  for (const int64_t thousands : {32, 64, 128}) {
    c.tokens = thousands * 1024;
    all.push_back({"msa_" + std::to_string(thousands) + "k", c, {}, {}});
  }
  return all;
}

}  // namespace

json run_msa_bench(at::Device device, const TargetBenchOptions& options) {
  json report = bench_report(device, options.seed);
  at::manual_seed(options.seed);
  const Checks of_short = check_short(msa_cases().front().config, device);
  for (const TargetCase& one : msa_cases()) {
    if (one.id.find(options.filter) == std::string::npos) continue;
    json row = run_case(one.id, one.config, device, [&](json& out) {
      note_checks(of_short, out);
      MsaBench(one, device, options, out).run();
    });
    for (const json& problem : row.at("problems"))
      std::fprintf(stderr, "%s: %s\n", one.id.c_str(), problem.get<std::string>().c_str());
    report["cases"].push_back(std::move(row));
    options.keep(report);
  }
  require_cases(report, options.filter);
  return report;
}

}  // namespace suites

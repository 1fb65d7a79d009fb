#include "suites/phases/correctness/row_judge.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "nsa/reference/reference.h"
#include "suites/compare/compare.h"
#include "suites/conformance/case_inputs.h"
#include "suites/conformance/convert.h"

namespace suites {
namespace {

namespace ref = nsa::reference;
using at::Tensor;

Tensor index_of(const std::vector<int64_t>& positions, at::Device device) {
  return at::tensor(positions, at::kLong).to(device);
}

/// Pooled keys or values of the plain low-precision computation, linear in S.
Tensor pooled(const CaseConfig& c, const Tensor& tokens) {
  const auto acc = accumulation_type(tokens.scalar_type());
  if (c.num_compressed() == 0) return tokens.narrow(1, 0, 0);
  return tokens.to(acc).unfold(1, c.block_size, c.block_stride).mean(-1).to(tokens.scalar_type());
}

double logit_of(const Tensor& q, const Tensor& k) {
  return largest_norm(q) * largest_norm(k) / std::sqrt(static_cast<double>(q.size(-1)));
}

}  // namespace

std::vector<int64_t> judged_positions(const CaseConfig& c, int64_t count, uint64_t seed) {
  std::set<int64_t> chosen;
  const int64_t last = c.tokens - 1;
  for (int64_t edge :
       {int64_t{1}, c.block_size, c.sel_block_size, c.top_n * c.sel_block_size, c.window, c.tokens})
    for (int64_t t : {edge - 2, edge - 1, edge})
      if (t >= 0 && t <= last) chosen.insert(t);
  std::mt19937_64 draw(seed);
  const auto want = static_cast<size_t>(std::min(count, c.tokens));
  while (chosen.size() < want)
    chosen.insert(static_cast<int64_t>(draw() % static_cast<uint64_t>(c.tokens)));
  return {chosen.begin(), chosen.end()};
}

CandidateRows rows_of(const nsa::NsaOutputs& out, const std::vector<int64_t>& positions) {
  const Tensor index = index_of(positions, out.o.device());
  const auto rows = [&](const Tensor& x) { return x.detach().index_select(1, index); };
  return {rows(out.q_rot), out.k_cmp.detach(), rows(out.block_idx), rows(out.o_cmp),
          rows(out.o_sel), rows(out.o_win),    rows(out.o)};
}

CandidateRows joined(const std::vector<CandidateRows>& parts) {
  CandidateRows all;
  for (const auto member : {&CandidateRows::q_rot, &CandidateRows::block_idx, &CandidateRows::o_cmp,
                            &CandidateRows::o_sel, &CandidateRows::o_win, &CandidateRows::o}) {
    std::vector<Tensor> rows;
    for (const CandidateRows& part : parts) rows.push_back(part.*member);
    all.*member = at::cat(rows, 1);
  }
  return all;
}

DenseInputs queries_at(const DenseInputs& inputs, const std::vector<int64_t>& positions) {
  DenseInputs rows = inputs;
  const Tensor index = index_of(positions, inputs.q.device());
  rows.q = inputs.q.index_select(1, index);
  rows.gate = inputs.gate.index_select(1, index);
  return rows;
}

struct RowJudge::Impl {
  CaseConfig config;
  DenseInputs in;
  std::vector<int64_t> t;
  ref::Config oracle_config;
  ref::Inputs keys;             ///< K and V of all tokens, fp64
  ref::Tensor<double> q, gate;  ///< of the judged rows, q not rotated
  ref::Given nothing;
  ref::Rows rows;
  Tensor q_rot, k_sel, k_win, k_cmp, v_cmp;  ///< of the plain computation
  SelectionReport report;

  Impl(const CaseConfig& c, const DenseInputs& inputs, std::vector<int64_t> positions)
      : config(c),
        in(inputs),
        t(std::move(positions)),
        oracle_config(to_reference(c)),
        keys(keys_of(inputs)),
        q(to_reference(inputs.q)),
        gate(to_reference(inputs.gate)),
        rows(oracle_config, keys, nothing) {
    TORCH_CHECK(c.phi == Phi::kMean, "suites::RowJudge: phi must be mean");
    const Tensor places = index_of(t, in.q.device()).to(at::kDouble);
    const Tensor all = at::arange(c.tokens, places.options());
    const auto rotated = [&](const Tensor& x, const Tensor& at) {
      return c.rope == RopeKind::kNone ? x : dense_rope(x, at, c.rope_base);
    };
    q_rot = rotated(in.q, places);
    k_sel = rotated(in.k_sel, all);
    k_win = rotated(in.k_win, all);
    k_cmp = pooled(c, rotated(in.k_cmp_src, all));
    v_cmp = pooled(c, in.v_cmp_src);
  }

  static ref::Inputs keys_of(DenseInputs inputs) {
    inputs.q = inputs.gate = Tensor();  // rows bring their own
    return to_reference(inputs);
  }

  std::string id(const char* op, const char* tensor, const std::string& name) const {
    return std::string("oracle/") + op + "/" + dtype_name(in.q.scalar_type()) + "/" + tensor + "/" +
           name;
  }

  /// Calls `row` for every judged (b, r, KV head).
  template <class F>
  void for_rows(F row) const {
    for (int64_t b = 0; b < in.q.size(0); ++b)
      for (size_t r = 0; r < t.size(); ++r)
        for (int64_t h = 0; h < config.num_kv_heads; ++h) row(b, static_cast<int64_t>(r), h);
  }

  ref::RowQuery query(int64_t b, int64_t r, int64_t h, std::span<const double> rotated) const {
    return {.t = t[static_cast<size_t>(r)],
            .q = rotated,
            .gates = ref::gates_of_row(oracle_config, gate, b, r, h)};
  }

  /// Every branch on the candidate's own block_idx.
  ref::Outputs on_own_ids(const ref::Tensor<int32_t>& ids) {
    ref::Outputs out = ref::allocate_outputs(oracle_config, in.q.size(0),
                                             static_cast<int64_t>(t.size()), config.tokens);
    const auto frequency = ref::rope_frequencies(config.qk_head_dim, config.rope_base);
    const auto dk = static_cast<size_t>(config.qk_head_dim);
    for_rows([&](int64_t b, int64_t r, int64_t h) {
      const auto group = ref::queries_of_row(oracle_config, q, b, r, h);
      std::vector<double> rotated(group.begin(), group.end());
      for (size_t i = 0; config.rope != RopeKind::kNone && i < rotated.size(); i += dk)
        ref::rotate(std::span(rotated).subspan(i, dk), t[static_cast<size_t>(r)], frequency,
                    oracle_config.rope_pairs);
      ref::RowQuery one = query(b, r, h, rotated);
      const auto row = ids.row(b, r, h);
      one.block_idx = std::vector<int32_t>(row.begin(), row.end());
      ref::store_row(oracle_config, rows.evaluate(b, h, one), b, r, h, out);
    });
    return out;
  }

  /// The oracle's scores on the candidate's own rotated q and compressed keys.
  Tensor scores_on(const CandidateRows& got) const {
    ref::Given given;
    given.k_cmp = to_reference(got.k_cmp);
    ref::Rows own(oracle_config, keys, given);
    const ref::Tensor<double> own_q = to_reference(got.q_rot);
    ref::Outputs out = ref::allocate_outputs(oracle_config, in.q.size(0),
                                             static_cast<int64_t>(t.size()), config.tokens);
    for_rows([&](int64_t b, int64_t r, int64_t h) {
      const auto group = ref::queries_of_row(oracle_config, own_q, b, r, h);
      ref::store_row(oracle_config, own.evaluate(b, h, query(b, r, h, group)), b, r, h, out);
    });
    return from_reference(out.scores);
  }

  Check selection(const CandidateRows& got, const std::string& name) {
    const SelectionShape shape{config.group_size(),   config.block_size, config.block_stride,
                               config.sel_block_size, config.top_n,      config.n_initial,
                               config.n_local};
    const Tensor places = index_of(t, at::kCPU);
    report = accept_selection(got.block_idx, scores_on(got),
                              selection_tie_bound(got.q_rot, got.k_cmp, shape, places), shape,
                              /*exact_ties=*/false, places);
    return make_check(id("select", "block_idx", name), report.ok, code::kOracleMismatch,
                      report.text, report.worst_gap);
  }

  /// The plain low-precision computation of the judged rows on the candidate's ids.
  CandidateRows plain(const Tensor& block_idx) const {
    const auto options = at::TensorOptions().dtype(at::kLong).device(in.q.device());
    const Tensor at = index_of(t, in.q.device()).view({1, -1, 1, 1});
    const auto counting = [&](int64_t n) { return at::arange(n, options).view({1, 1, 1, -1}); };
    const Tensor token = counting(config.tokens), block = counting(config.num_compressed());
    const Tensor visible = block * config.block_stride + config.block_size - 1 <= at;
    const Tensor window = (token <= at).logical_and(token > at - config.window);
    const Tensor chosen = (block_idx.unsqueeze(-1) == counting(config.num_sel_blocks())).any(-2);
    const Tensor selected = chosen.repeat_interleave(config.sel_block_size, -1)
                                .narrow(-1, 0, config.tokens)
                                .logical_and(token <= at);
    CandidateRows rows_plain;
    rows_plain.o_cmp = dense_attention(q_rot, k_cmp, v_cmp, visible).o;
    rows_plain.o_sel = dense_attention(q_rot, k_sel, in.v_sel, selected).o;
    rows_plain.o_win = dense_attention(q_rot, k_win, in.v_win, window).o;
    rows_plain.o =
        dense_combine(config, in.gate, rows_plain.o_cmp, rows_plain.o_sel, rows_plain.o_win);
    return rows_plain;
  }
};

RowJudge::RowJudge(const CaseConfig& config, const DenseInputs& inputs,
                   std::vector<int64_t> positions)
    : impl_(std::make_unique<Impl>(config, inputs, std::move(positions))) {}
RowJudge::~RowJudge() = default;

const SelectionReport& RowJudge::selection() const { return impl_->report; }

Checks RowJudge::judge(const CandidateRows& got, const std::string& name) {
  Impl& own = *impl_;
  const at::NoGradGuard no_grad;
  Checks checks = {own.selection(got, name)};
  // Without a right number of ids the rest would be compared with nothing.
  if (got.block_idx.size(1) != static_cast<int64_t>(own.t.size())) return checks;
  const ref::Outputs oracle = own.on_own_ids(to_reference_ids(got.block_idx));
  const CandidateRows plain = own.plain(got.block_idx);
  const double logit = std::max({logit_of(own.q_rot, own.k_sel), logit_of(own.q_rot, own.k_win),
                                 logit_of(own.q_rot, own.k_cmp)});
  const auto compared = [&](const char* op, const char* tensor, const Tensor& actual,
                            const ref::Tensor<double>& expected, const Tensor& low) {
    CompareContext context;
    context.plain = low;
    context.max_logit = logit;
    checks.push_back(make_check(own.id(op, tensor, name),
                                compare(actual, from_reference(expected),
                                        tolerance(op, tensor, actual.scalar_type()), context)));
  };
  compared("cmp_attn", "o_cmp", got.o_cmp, oracle.o_cmp, plain.o_cmp);
  compared("sel_attn", "o_sel", got.o_sel, oracle.o_sel, plain.o_sel);
  compared("win_attn", "o_win", got.o_win, oracle.o_win, plain.o_win);
  compared("combine", "o", got.o, oracle.o, plain.o);
  return checks;
}

}  // namespace suites

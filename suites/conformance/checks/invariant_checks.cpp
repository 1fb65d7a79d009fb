#include "suites/conformance/checks/invariant_checks.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "nsa/reference/passes/forward.h"
#include "suites/conformance/case_inputs.h"
#include "suites/conformance/convert.h"
#include "suites/conformance/stages.h"

namespace suites {
namespace {

using at::Tensor;

std::string invariant_id(const OperatorCase& one, const char* name, const std::string& what) {
  return std::string("invariant/") + name + "/" + dtype_name(one.type) + "/" + what + "/" +
         one.name;
}

bool power_of_two(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

/// Rotated dot products of constant vectors x, y [D] at distance t - s: [S,S].
Tensor expected_dots(const Tensor& x, const Tensor& y, int64_t tokens, double base) {
  const int64_t dim = x.size(0);
  const Tensor theta =
      at::pow(base, at::arange(dim / 2, at::kDouble) * (-2.0 / static_cast<double>(dim)));
  const Tensor t = at::arange(tokens, at::kDouble),
               angle = (t.unsqueeze(1) - t.unsqueeze(0)).unsqueeze(-1) * theta;
  const Tensor x0 = x.slice(0, 0, dim, 2), x1 = x.slice(0, 1, dim, 2), y0 = y.slice(0, 0, dim, 2),
               y1 = y.slice(0, 1, dim, 2);
  return (at::cos(angle) * (x0 * y0 + x1 * y1) - at::sin(angle) * (x1 * y0 - x0 * y1)).sum(-1);
}

/// Scalar whose derivatives are checked: a fixed random functional of one branch.
using Functional = std::function<Tensor(const DenseInputs&)>;

/// Derivative of f along u in input `name`, by autograd and by a central difference, as [2].
std::pair<Tensor, Tensor> derivative(const Functional& f, const DenseInputs& in, size_t index,
                                     const Tensor& u) {
  constexpr double kStep = 1e-5;
  DenseInputs leaves = as_leaves(in);
  const Tensor leaf = *named_inputs(leaves)[index].second;
  const Tensor value = f(leaves);
  Tensor by_autograd = at::zeros({1}, u.options());
  if (value.requires_grad()) {
    const auto grad = torch::autograd::grad({value}, {leaf}, {}, std::nullopt, false, true);
    if (grad[0].defined()) by_autograd = (grad[0] * u).sum().view({1});
  }
  const auto at_offset = [&](double h) {
    DenseInputs moved = in;
    Tensor* x = named_inputs(moved)[index].second;
    *x = *x + u * h;
    return f(moved).detach();
  };
  return {by_autograd.detach(), ((at_offset(kStep) - at_offset(-kStep)) / (2 * kStep)).view({1})};
}

Checks full_coverage(const Candidate& candidate, const OperatorCase& given) {
  OperatorCase one = given;
  one.config.window = one.config.tokens + 3;
  one.config.top_n = one.config.num_sel_blocks() + one.config.n_initial + one.config.n_local;
  const DenseInputs in = inputs_of(one);
  const StageOutputs got = run_stages(candidate, one.config, in);
  const Tensor causal = window_mask(one.config).to(one.device);
  const auto line = [&](const char* op, const char* tensor, const Tensor& actual, const Tensor& k,
                        const Tensor& v) {
    const DenseAttention dense =
        dense_attention(got.q_rot.to(at::kDouble), k.to(at::kDouble), v.to(at::kDouble), causal);
    CompareContext context;
    context.plain = dense_attention(got.q_rot, k, v, causal).o;
    return make_check(invariant_id(one, "full_coverage", tensor),
                      compare(actual, dense.o.cpu(), tolerance(op, tensor, one.type), context));
  };
  return {line("win_attn", "o_win", got.o_win, got.k_win_rot, in.v_win),
          line("sel_attn", "o_sel", got.o_sel, got.k_sel_rot, in.v_sel)};
}

}  // namespace

Checks check_full_coverage(const Candidate& candidate, const OperatorCase& one) {
  return confirmed([&](const OperatorCase& drawn) { return full_coverage(candidate, drawn); }, one);
}

Checks check_group_permutation(const Candidate& candidate, const OperatorCase& one) {
  DenseInputs in = inputs_of(one);
  const StageOutputs before = run_stages(candidate, one.config, in);
  const int64_t kv = one.config.num_kv_heads, group = one.config.group_size();
  const Tensor heads =
      at::arange(kv - 1, -1, -1, at::TensorOptions().dtype(at::kLong).device(one.device));
  const Tensor queries =
      (heads.unsqueeze(1) * group + at::arange(group, heads.options())).flatten();
  for (Tensor* x : {&in.k_cmp_src, &in.v_cmp_src, &in.k_sel, &in.v_sel, &in.k_win, &in.v_win})
    *x = x->index_select(2, heads);
  in.q = in.q.index_select(2, queries);
  in.gate = in.gate.index_select(2, in.gate.size(2) == kv ? heads : queries);
  const StageOutputs after = run_stages(candidate, one.config, in);
  const Tensor o = before.o.index_select(2, queries).cpu();
  return {make_check(invariant_id(one, "group_permutation", "block_idx"),
                     compare_exact(after.block_idx, before.block_idx.index_select(2, heads)),
                     code::kInvariant),
          make_check(invariant_id(one, "group_permutation", "o"),
                     compare(after.o, o, tolerance("nsa", "o", one.type)), code::kInvariant)};
}

Checks check_rope_property(const Candidate& candidate, const OperatorCase& one) {
  constexpr int64_t kTokens = 23;
  const int64_t dim = one.config.qk_head_dim, heads = std::max<int64_t>(2, one.config.num_kv_heads);
  at::Generator g = make_generator(one.seed + 4);
  const Tensor x = make_data({dim}, DataKind::kNormal, g, one.type),
               y = make_data({dim}, DataKind::kNormal, g, one.type);
  const Tensor positions =
      at::arange(kTokens, at::TensorOptions().dtype(at::kLong).device(one.device));
  const auto everywhere = [&](const Tensor& v) {
    return v.to(one.device).expand({1, kTokens, heads, dim}).contiguous();
  };
  const auto dots = [&](const Tensor& a, const Tensor& b) {
    return at::einsum("bthd,bshd->hts", {a.to(at::kDouble), b.to(at::kDouble)})
        .to(accumulation_type(one.type));
  };
  const double base = one.config.rope_base;
  const Tensor fp64_positions = positions.to(at::kDouble);
  const Tensor got = dots(candidate.rope(everywhere(x), positions, base),
                          candidate.rope(everywhere(y), positions, base));
  const Tensor plain = dots(dense_rope(everywhere(x), fp64_positions, base),
                            dense_rope(everywhere(y), fp64_positions, base));
  const Tensor expected = expected_dots(x.to(at::kDouble), y.to(at::kDouble), kTokens, base)
                              .expand({heads, kTokens, kTokens});
  CompareContext context;
  context.plain = plain;
  const CompareReport report = compare(got, expected, tolerance("rope", "dot", one.type), context);
  return {make_check(invariant_id(one, "rope_property", "dot"), report, code::kRopeProperty)};
}

Checks check_mode_agreement(const Candidate& candidate, const OperatorCase& one) {
  const DenseInputs in = inputs_of(one);
  // A candidate judged as a whole is a mode of its own.
  const Candidate plain = plain_candidate();
  const StageOutputs batched = run_stages(candidate.whole ? plain : candidate, one.config, in),
                     steps = candidate.whole ? run_stages(candidate, one.config, in)
                                             : run_token_by_token(candidate, one.config, in);
  CompareReport ids = compare_exact(steps.block_idx, batched.block_idx);
  if (!ids.ok) ids.text = "selection set differs between batched and token by token: " + ids.text;
  const CompareReport o = compare(steps.o, batched.o.cpu(), tolerance("nsa", "o", one.type));
  return {
      make_check(invariant_id(one, "mode_agreement", "block_idx"), ids, code::kModeDisagreement),
      make_check(invariant_id(one, "mode_agreement", "o"), o, code::kModeDisagreement)};
}

Checks check_derivatives(const Candidate& candidate, const OperatorCase& one) {
  const DenseInputs in = inputs_of(one);
  const Tensor block_idx = run_stages(candidate, one.config, in).block_idx;
  at::Generator g = make_generator(one.seed + 5);
  Checks checks;
  for (const auto& [branch, member] :
       {std::pair{"cmp", &StageOutputs::o_cmp}, std::pair{"sel", &StageOutputs::o_sel},
        std::pair{"win", &StageOutputs::o_win}, std::pair{"o", &StageOutputs::o}}) {
    if (candidate.whole && member != &StageOutputs::o) continue;  // o depends on all of them
    const Tensor weight =
        make_data((run_stages(candidate, one.config, in, block_idx).*member).sizes(),
                  DataKind::kNormal, g, one.type)
            .to(one.device);
    const auto output = member;
    const Functional f = [&](const DenseInputs& x) {
      return (run_stages(candidate, one.config, x, block_idx).*output * weight).sum();
    };
    std::vector<Tensor> autograd, difference;
    DenseInputs named = in;
    for (size_t i = 0; i < named_inputs(named).size(); ++i) {
      const Tensor u =
          make_data(named_inputs(named)[i].second->sizes(), DataKind::kNormal, g, one.type)
              .to(one.device);
      const auto [by_autograd, by_difference] = derivative(f, in, i, u);
      autograd.push_back(by_autograd);
      difference.push_back(by_difference);
    }
    checks.push_back(make_check(invariant_id(one, "derivatives", branch),
                                compare(at::cat(autograd), at::cat(difference).cpu(),
                                        tolerance("nsa", "derivative", one.type)),
                                code::kInvariant));
  }
  return checks;
}

Checks check_exact_data(const Candidate& candidate, const OperatorCase& given) {
  OperatorCase one = given;
  CaseConfig& c = one.config;
  c.tokens = 32;
  c.block_size = 4;
  c.block_stride = 2;
  c.sel_block_size = 4;
  c.top_n = 16;
  c.n_initial = 1;
  c.n_local = 2;
  c.window = 8;
  c.phi = Phi::kMean;
  c.gate = GateKind::kNone;
  one.kind = DataKind::kSmallInteger;
  DenseInputs in = inputs_of(one);
  in.q = at::zeros_like(in.q);
  at::Generator g = make_generator(one.seed + 6);
  in.gate = make_data(in.gate.sizes(), DataKind::kSmallInteger, g, one.type).to(one.device);
  const StageOutputs got = run_stages(candidate, c, in);
  const auto oracle = nsa::reference::forward(to_reference(c), to_reference(in));
  std::vector<int64_t> cmp_rows, sel_rows, win_rows, all_rows;
  for (int64_t t = 0; t < c.tokens; ++t) {
    const int64_t visible = t < c.block_size - 1 ? 0 : (t + 1 - c.block_size) / c.block_stride + 1;
    const bool cmp = visible == 0 || power_of_two(visible), sel = power_of_two(t + 1),
               win = power_of_two(std::min(t + 1, c.window));
    if (cmp) cmp_rows.push_back(t);
    if (sel) sel_rows.push_back(t);
    if (win) win_rows.push_back(t);
    if (cmp && sel && win) all_rows.push_back(t);
  }
  Checks checks;
  const auto line = [&](const char* what, const Tensor& actual,
                        const nsa::reference::Tensor<double>& expected,
                        const std::vector<int64_t>& rows) {
    const Tensor index = at::tensor(rows, at::kLong);
    checks.push_back(
        make_check(invariant_id(one, "exact_data", what),
                   compare_exact(actual.cpu().index_select(1, index),
                                 from_reference(expected).index_select(1, index).to(one.type)),
                   code::kInvariant));
  };
  line("o_cmp", got.o_cmp, oracle.o_cmp, cmp_rows);
  line("o_sel", got.o_sel, oracle.o_sel, sel_rows);
  line("o_win", got.o_win, oracle.o_win, win_rows);
  line("o", got.o, oracle.o, all_rows);
  return checks;
}

Checks check_invariants(const Candidate& candidate, const OperatorCase& one,
                        const std::function<void(const char*)>& done) {
  using Check1 = Checks (*)(const Candidate&, const OperatorCase&);
  struct Entry {
    const char* name;
    Check1 run;
    bool fp64_only;
  };
  static constexpr Entry kAll[] = {{"future", check_future_perturbation, false},
                                   {"full_coverage", check_full_coverage, false},
                                   {"group_permutation", check_group_permutation, true},
                                   {"rope_property", check_rope_property, false},
                                   {"mode_agreement", check_mode_agreement, true},
                                   {"decode", check_decode, false},
                                   {"derivatives", check_derivatives, true},
                                   {"exact_data", check_exact_data, false},
                                   {"non_finite", check_non_finite, false},
                                   {"poisoned_memory", check_poisoned_memory, false},
                                   {"hostile_ranges", check_hostile_ranges, false},
                                   {"switches", check_switches, true}};
  Checks all;
  for (const Entry& entry : kAll) {
    if (entry.fp64_only && one.type != at::kDouble) continue;
    if (candidate.whole && entry.run == check_hostile_ranges) continue;
    if (candidate.whole && entry.run == check_decode) continue;
    if (!candidate.differentiable && entry.run == check_derivatives) continue;
    try {
      const Checks checks = entry.run(candidate, one);
      all.insert(all.end(), checks.begin(), checks.end());
    } catch (const std::exception& error) {
      all.push_back(make_check(invariant_id(one, entry.name, "threw"), false, code::kInvariant,
                               error.what()));
    }
    if (done) done(entry.name);
  }
  return all;
}

}  // namespace suites

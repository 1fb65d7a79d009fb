// Non-finite tokens reach exactly the rows that attend them; declared in invariant_checks.h.
#include <ATen/ATen.h>

#include <cmath>

#include "nsa/reference/passes/forward.h"
#include "suites/conformance/checks/invariant_checks.h"
#include "suites/conformance/convert.h"
#include "suites/conformance/stages.h"

namespace suites {
namespace {

using at::Tensor;

/// One input of a branch that is poisoned, and what it may reach.
struct Target {
  const char *input, *branch;
  Tensor DenseInputs::* x;
  Tensor StageOutputs::* out;
  Tensor StageOutputs::* lse;
};

constexpr Target kTargets[] = {
    {"k_cmp_src", "cmp", &DenseInputs::k_cmp_src, &StageOutputs::o_cmp, &StageOutputs::lse_cmp},
    {"v_cmp_src", "cmp", &DenseInputs::v_cmp_src, &StageOutputs::o_cmp, &StageOutputs::lse_cmp},
    {"k_sel", "sel", &DenseInputs::k_sel, &StageOutputs::o_sel, &StageOutputs::lse_sel},
    {"v_sel", "sel", &DenseInputs::v_sel, &StageOutputs::o_sel, &StageOutputs::lse_sel},
    {"k_win", "win", &DenseInputs::k_win, &StageOutputs::o_win, &StageOutputs::lse_win},
    {"v_win", "win", &DenseInputs::v_win, &StageOutputs::o_win, &StageOutputs::lse_win},
};

/// Where a token is poisoned: sequence 0, one KV head.
struct NonFinitePlace {
  int64_t token, kv_head;
};

/// Whether row t of the poisoned sequence and head attends the token, by the definition of the
/// branch.
bool attends(const CaseConfig& c, const std::string& branch, const Tensor& block_idx, int64_t t,
             const NonFinitePlace& at) {
  if (at.token > t) return false;
  if (branch == "win") return at.token > t - c.window;
  if (branch == "sel")
    return (block_idx[0][t][at.kv_head] == at.token / c.sel_block_size).any().item<bool>();
  for (int64_t begin = 0; begin + c.block_size - 1 <= t; begin += c.block_stride)
    if (begin <= at.token && at.token < begin + c.block_size) return true;
  return false;
}

/// True for the rows [B,S,Hq] that the token may reach.
Tensor reach(const CaseConfig& c, const std::string& branch, const Tensor& block_idx,
             const NonFinitePlace& at) {
  Tensor rows = at::zeros({c.batch, c.tokens, c.num_heads}, at::kBool);
  for (int64_t t = 0; t < c.tokens; ++t)
    if (attends(c, branch, block_idx, t, at))
      rows[0][t].narrow(0, at.kv_head * c.group_size(), c.group_size()).fill_(true);
  return rows;
}

/// 0 finite, 1 and -1 the infinities, 2 NaN.
Tensor kind_of_value(const Tensor& x) {
  const Tensor host = x.detach().to(at::kCPU, at::kDouble);
  const Tensor infinite = at::isinf(host).to(at::kInt) * host.sign().nan_to_num(0).to(at::kInt);
  return infinite + at::isnan(host).to(at::kInt) * 2;
}

/// Empty when `after` differs from `before` inside `rows` only and is there as non-finite as the
/// oracle.
std::string wrong_rows(const Tensor& before, const Tensor& after, const Tensor& oracle,
                       const Tensor& rows) {
  const Tensor inside = after.dim() == rows.dim() ? rows : rows.unsqueeze(-1);
  const Tensor a = after.detach().cpu(), b = before.detach().cpu();
  const Tensor same = (a == b).logical_or(at::isnan(a).logical_and(at::isnan(b)));
  const Tensor leaked = same.logical_or(inside).logical_not();
  const Tensor other_kind = (kind_of_value(a) != kind_of_value(oracle)).logical_and(inside);
  const auto first_row = [](const Tensor& bad) {
    return std::to_string(bad.nonzero()[0][1].item<int64_t>());
  };
  if (leaked.any().item<bool>()) return "changes position " + first_row(leaked);
  if (other_kind.any().item<bool>())
    return "position " + first_row(other_kind) + " is not as non-finite as the oracle's";
  return "";
}

Tensor oracle_tensor(const nsa::reference::Outputs& out, const std::string& branch, bool lse) {
  if (branch == "cmp") return from_reference(lse ? out.lse_cmp : out.o_cmp);
  if (branch == "sel") return from_reference(lse ? out.lse_sel : out.o_sel);
  return from_reference(lse ? out.lse_win : out.o_win);
}

/// What one poisoned value does wrong in any branch; empty for nothing.
std::string problem_of(const Candidate& candidate, const OperatorCase& one, const DenseInputs& in,
                       const StageOutputs& before, const Target& target, double value,
                       const NonFinitePlace& at) {
  DenseInputs poisoned = in;
  Tensor& x = poisoned.*target.x;
  x = x.clone();
  x[0][at.token][at.kv_head].fill_(value);
  const StageOutputs after =
      run_stages(candidate, one.config, lay_out(poisoned, one.layout), before.block_idx);
  nsa::reference::Given given;
  given.block_idx = to_reference_ids(before.block_idx);
  const auto oracle =
      nsa::reference::forward(to_reference(one.config), to_reference(poisoned), given);
  const Tensor host_ids = before.block_idx.cpu();
  for (const Target& other : kTargets) {
    const bool own = std::string(other.branch) == target.branch;
    const Tensor rows =
        own ? reach(one.config, other.branch, host_ids, at)
            : at::zeros({one.config.batch, one.config.tokens, one.config.num_heads}, at::kBool);
    for (const bool lse : {false, true}) {
      const auto member = lse ? other.lse : other.out;
      const std::string wrong =
          wrong_rows(before.*member, after.*member, oracle_tensor(oracle, other.branch, lse), rows);
      if (!wrong.empty())
        return std::string(target.input) + " of token " + std::to_string(at.token) + " set to " +
               std::to_string(value) + ": branch " + other.branch + (lse ? ", lse, " : ", ") +
               wrong;
    }
  }
  return "";
}

}  // namespace

Checks check_non_finite(const Candidate& candidate, const OperatorCase& given) {
  OperatorCase one = given;
  if (one.layout == Layout::kExpanded) one.layout = Layout::kStrided;  // one head is poisoned
  const DenseInputs in = make_inputs(one.config, one.kind, one.seed, one.type, one.device);
  const StageOutputs clean = run_stages(candidate, one.config, lay_out(in, one.layout));
  // With given ids, as the poisoned runs have them: a poisoned key must not choose other blocks.
  const StageOutputs before =
      run_stages(candidate, one.config, lay_out(in, one.layout), clean.block_idx);
  const NonFinitePlace at{one.config.tokens / 2, one.config.num_kv_heads - 1};
  Checks checks;
  for (const Target& target : kTargets) {
    std::string problem;
    for (const double value : {std::nan(""), HUGE_VAL, -HUGE_VAL})
      if (problem.empty()) problem = problem_of(candidate, one, in, before, target, value, at);
    checks.push_back(make_check(
        "invariant/non_finite/" + dtype_name(one.type) + "/" + target.input + "/" + one.name,
        problem.empty(), code::kInvariant,
        problem.empty() ? "NaN and Inf stay in the rows that attend them" : problem));
  }
  return checks;
}

}  // namespace suites

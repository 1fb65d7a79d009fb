// Future perturbation; declared in invariant_checks.h.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "suites/conformance/case_inputs.h"
#include "suites/conformance/checks/invariant_checks.h"
#include "suites/conformance/stages.h"

namespace suites {
namespace {

using at::Tensor;

/// Outputs of a branch that rows at <= t must keep.
struct Branch {
  const char* name;
  std::vector<Tensor StageOutputs::*> outputs;
};

const std::vector<Branch>& branches() {
  static const std::vector<Branch> all = {
      {"cmp", {&StageOutputs::o_cmp, &StageOutputs::lse_cmp}},
      {"select", {&StageOutputs::scores, &StageOutputs::block_idx, &StageOutputs::ranges}},
      {"sel", {&StageOutputs::o_sel, &StageOutputs::lse_sel}},
      {"win", {&StageOutputs::o_win, &StageOutputs::lse_win}},
      {"o", {&StageOutputs::o}},
  };
  return all;
}

/// First row <= t at which two tensors [B,S,...] differ in any bit pattern (NaN equals NaN); -1 for
/// none.
int64_t first_difference(const Tensor& a, const Tensor& b, int64_t t) {
  const Tensor x = a.detach().narrow(1, 0, t + 1), y = b.detach().narrow(1, 0, t + 1);
  const Tensor same = (x == y).logical_or(x.isnan().logical_and(y.isnan()));
  const Tensor rows = same.transpose(0, 1).reshape({t + 1, -1}).logical_not().any(-1).to(at::kLong);
  return rows.any().item<bool>() ? rows.argmax().item<int64_t>() : -1;
}

struct Perturbation {
  const char* name;
  double value;  ///< NaN, infinity, a number; random values when `random`
  bool random = false;
};

/// Every token-wise input changed behind t.
DenseInputs perturbed(const DenseInputs& in, int64_t t, const Perturbation& how, uint64_t seed) {
  at::Generator g = make_generator(seed + 3);
  DenseInputs out = in;
  for (Tensor* x : token_inputs(out))
    *x = how.random ? randomize_after(*x, t, g) : poison_after(*x, t, how.value);
  return out;
}

/// Positions worth cutting at: around the first block, the window, the selection blocks, and the
/// last but one token. Modes that go token by token take seconds: two cuts.
std::set<int64_t> cuts(const CaseConfig& c, bool few) {
  if (few) return {std::min(c.window, c.tokens - 1) / 2, std::max<int64_t>(0, c.tokens - 2)};
  std::set<int64_t> all;
  for (int64_t t : {int64_t{0}, c.block_size - 2, c.block_size - 1, c.sel_block_size - 1,
                    c.sel_block_size, c.window - 1, c.window, c.tokens / 2, c.tokens - 2})
    if (t >= 0 && t < c.tokens - 1) all.insert(t);
  return all;
}

}  // namespace

Checks check_future_perturbation(const Candidate& candidate, const OperatorCase& one) {
  const DenseInputs in = make_inputs(one.config, one.kind, one.seed, one.type, one.device);
  const StageOutputs before = run_stages(candidate, one.config, lay_out(in, one.layout));
  std::vector<std::string> leaks(branches().size());
  int64_t tried = 0;
  for (const Perturbation& how :
       {Perturbation{"random values", 0, true}, Perturbation{"1e4", 1e4},
        Perturbation{"NaN", std::nan("")}, Perturbation{"Inf", INFINITY}}) {
    for (const int64_t t : cuts(one.config, candidate.whole)) {
      const DenseInputs changed = lay_out(perturbed(in, t, how, one.seed), one.layout);
      const StageOutputs after = run_stages(candidate, one.config, changed);
      ++tried;
      for (size_t i = 0; i < branches().size(); ++i) {
        for (auto member : branches()[i].outputs) {
          if (!(before.*member).defined() && !(after.*member).defined()) continue;
          const int64_t row = first_difference(before.*member, after.*member, t);
          if (row < 0 || !leaks[i].empty()) continue;
          leaks[i] = std::string("branch ") + branches()[i].name + ": tokens from " +
                     std::to_string(t + 1) + " set to " + how.name + " change position " +
                     std::to_string(row);
        }
      }
    }
  }
  Checks checks;
  for (size_t i = 0; i < branches().size(); ++i)
    checks.push_back(make_check(
        "invariant/future/" + dtype_name(one.type) + "/" + branches()[i].name + "/" + one.name,
        leaks[i].empty(), code::kCausalityLeak,
        leaks[i].empty() ? std::to_string(tried) + " perturbations, no change" : leaks[i]));
  return checks;
}

}  // namespace suites

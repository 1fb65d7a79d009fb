// What lies around tensors neither counts nor changes; declared in invariant_checks.h.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <deque>
#include <memory>

#include "suites/conformance/checks/invariant_checks.h"
#include "suites/conformance/redzone.h"
#include "suites/conformance/stages.h"

namespace suites {
namespace {

using at::Tensor;

/// Outputs of a forward and, with gradients, of its backward.
std::vector<Tensor> results(const Candidate& candidate, const OperatorCase& one,
                            DenseInputs inputs) {
  std::vector<Tensor> leaves;
  for (auto& [name, tensor] : named_inputs(inputs)) {
    *tensor = tensor->detach();
    if (candidate.differentiable) tensor->requires_grad_(true);
    leaves.push_back(*tensor);
  }
  const StageOutputs got = run_stages(candidate, one.config, inputs);
  std::vector<Tensor> all;
  for (const Tensor& x : {got.o, got.o_cmp, got.o_sel, got.o_win, got.lse_cmp, got.lse_sel,
                          got.lse_win, got.scores, got.block_idx, got.ranges})
    if (x.defined()) all.push_back(x.detach().clone());
  if (!got.o.requires_grad()) return all;
  for (const Tensor& x : torch::autograd::grad({got.o}, leaves, {at::ones_like(got.o)},
                                               std::nullopt, false, /*allow_unused=*/true))
    if (x.defined()) all.push_back(x.clone());
  return all;
}

bool bit_equal(const Tensor& a, const Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  return (a == b).logical_or(a.isnan().logical_and(b.isnan())).all().item<bool>();
}

int64_t differing(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  if (a.size() != b.size()) return static_cast<int64_t>(std::max(a.size(), b.size()));
  int64_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) count += !bit_equal(a[i], b[i]);
  return count;
}

}  // namespace

Checks check_poisoned_memory(const Candidate& candidate, const OperatorCase& one) {
  const DenseInputs in = make_inputs(one.config, one.kind, one.seed, one.type, one.device);
  const auto line = [&](const char* what, int64_t wrong, const std::string& detail) {
    return make_check(
        "invariant/poisoned_memory/" + dtype_name(one.type) + "/" + what + "/" + one.name,
        wrong == 0, code::kInvariant, std::to_string(wrong) + " " + detail);
  };
  const std::vector<Tensor> before = results(candidate, one, in);
  std::deque<GuardedTensor> guards;
  DenseInputs guarded = in;
  for (auto& [name, tensor] : named_inputs(guarded)) {
    guards.emplace_back(*tensor);
    *tensor = guards.back().tensor();
  }
  int64_t violations = 0, allocations = 1;
  std::vector<Tensor> after;
  {
    std::unique_ptr<RedzoneScope> redzones;  // on a GPU, compute-sanitizer watches instead
    if (one.device.is_cpu()) redzones = std::make_unique<RedzoneScope>();
    {
      const std::vector<Tensor> inside = results(candidate, one, guarded);
      for (const Tensor& x : inside) after.push_back(x.clone());
    }
    if (redzones) {
      violations = redzones->violations();
      allocations = redzones->allocations();
    }
  }
  int64_t changed = 0;
  for (const GuardedTensor& guard : guards) changed += guard.changed_bytes();
  return {line("results", differing(before, after), "results depend on memory around the tensors"),
          line("inputs", changed, "bytes in or around the inputs were written"),
          line("blocks", violations, "blocks were written outside their ends"),
          line("watched", allocations > 0 ? 0 : 1, "runs allocated nothing that was watched")};
}

}  // namespace suites

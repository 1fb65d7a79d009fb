// Gradients against the oracle's plain-loop backward; declared in operator_checks.h.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "nsa/reference/passes/backward.h"
#include "suites/conformance/case_inputs.h"
#include "suites/conformance/checks/operator_checks.h"
#include "suites/conformance/convert.h"
#include "suites/conformance/stages.h"

namespace suites {
namespace {

using at::Tensor;

/// Where the gradient of an input stands: family of the check, and key of the tolerance table.
struct GradientPlace {
  const char *family, *op, *tensor;
};

GradientPlace place_of(const std::string& input) {
  if (input == "q") return {"cmp_attn", "attn", "d_q"};
  if (input == "gate") return {"gate", "combine", "d_gate"};
  if (input == "k_cmp_src" || input == "v_cmp_src") return {"compress", "compress", "d_src"};
  if (input.rfind("phi_", 0) == 0) return {"compress", "compress", "d_weight"};
  const char* family = input.find("sel") != std::string::npos ? "sel_attn" : "win_attn";
  return {family, "attn", input[0] == 'k' ? "d_k" : "d_v"};
}

std::vector<Tensor> tensors_of(DenseInputs& inputs) {
  std::vector<Tensor> all;
  for (const auto& [name, tensor] : named_inputs(inputs)) all.push_back(*tensor);
  return all;
}

/// d(sum(o * d_o)) / d(leaves); an input that o does not depend on gets zeros.
std::vector<Tensor> gradients(const Tensor& o, const Tensor& d_o,
                              const std::vector<Tensor>& leaves) {
  if (!o.requires_grad()) return std::vector<Tensor>(leaves.size());
  return torch::autograd::grad({o}, leaves, {d_o}, std::nullopt, false, /*allow_unused=*/true);
}

Tensor or_zeros(const Tensor& gradient, const Tensor& like) {
  return gradient.defined() ? gradient : at::zeros_like(like).detach();
}

/// The oracle's gradients as tensors, in the order of named_inputs.
std::vector<Tensor> oracle_gradients(const OperatorCase& one, const DenseInputs& in,
                                     const Tensor& d_o, const Tensor& block_idx) {
  nsa::reference::Given given;
  given.block_idx = to_reference_ids(block_idx);
  return in_named_order(nsa::reference::backward(to_reference(one.config), to_reference(in),
                                                 to_reference(d_o), given));
}

/// Size of the terms of a key's or query's gradient before they cancel: |d_o| |v| |k| / sqrt(dk); 0
/// where none cancel.
double terms_of(const std::string& input, const DenseInputs& in, const Tensor& d_o) {
  const bool query = input == "q", key = input[0] == 'k' || input.rfind("phi_k", 0) == 0;
  if (!query && !key) return 0;
  const double v =
      std::max({largest_norm(in.v_cmp_src), largest_norm(in.v_sel), largest_norm(in.v_win)});
  const double k =
      std::max({largest_norm(in.k_cmp_src), largest_norm(in.k_sel), largest_norm(in.k_win)});
  return largest_norm(d_o) * v * (query ? k : largest_norm(in.q)) /
         std::sqrt(static_cast<double>(in.q.size(-1)));
}

/// Gradients of the dense formulation on given ids.
std::vector<Tensor> dense_gradients(const CaseConfig& config, const DenseInputs& in,
                                    const Tensor& d_o, const Tensor& block_idx) {
  DenseInputs leaves = as_leaves(in);
  const std::vector<Tensor> all = tensors_of(leaves);
  std::vector<Tensor> found = gradients(dense_nsa(config, leaves, block_idx).o, d_o, all);
  for (size_t i = 0; i < found.size(); ++i) found[i] = or_zeros(found[i], all[i]);
  return found;
}

/// One gradient that is judged: an input, or all weights of a phi as one tensor.
struct Judged {
  std::string name;  ///< "q", "phi_k"
  std::vector<size_t> parts;
};

/// The inputs in order; below fp64 the weights of a phi joined: a bias alone is one row, and the
/// gradient of phi_k.b2 is 0 (a constant added to every key changes no softmax), so that neither
/// has a scale or a sample of errors of its own.
std::vector<Judged> judged_gradients(DenseInputs& inputs, bool join) {
  std::vector<Judged> all;
  for (const auto& [name, tensor] : named_inputs(inputs)) {
    const std::string own = join ? name.substr(0, name.find('.')) : name;
    if (all.empty() || all.back().name != own) all.push_back({own, {}});
    const size_t before = all.size() > 1 ? all[all.size() - 2].parts.back() + 1 : 0;
    all.back().parts.push_back(before + all.back().parts.size());
  }
  return all;
}

/// The parts as one tensor; several as their rows, padded with 0.
Tensor joined(const Judged& judged, const std::vector<Tensor>& gradients) {
  if (judged.parts.size() == 1) return gradients[judged.parts[0]];
  int64_t width = 0;
  for (size_t i : judged.parts) width = std::max(width, gradients[i].size(-1));
  std::vector<Tensor> rows;
  for (size_t i : judged.parts)
    rows.push_back(at::constant_pad_nd(gradients[i].reshape({-1, gradients[i].size(-1)}),
                                       {0, width - gradients[i].size(-1)}));
  return at::cat(rows);
}

void gradient_checks(const Candidate& candidate, const OperatorCase& one, Checks& checks) {
  const DenseInputs in = make_inputs(one.config, one.kind, one.seed, one.type, one.device);
  at::Generator g = make_generator(one.seed + 2);
  DenseInputs leaves = as_leaves(in);
  const std::vector<Tensor> inputs = tensors_of(leaves);
  // An expanded leaf would add up the gradients of its heads: values must stay, so it is strided.
  const Layout layout = one.layout == Layout::kExpanded ? Layout::kStrided : one.layout;
  const StageOutputs got = run_stages(candidate, one.config, lay_out(leaves, layout));
  const Tensor d_o =
      lay_out(make_data(got.o.sizes(), DataKind::kNormal, g, one.type).to(one.device), layout);
  std::vector<Tensor> actual = gradients(got.o, d_o, inputs);
  for (size_t i = 0; i < actual.size(); ++i) actual[i] = or_zeros(actual[i], inputs[i]);
  const std::vector<Tensor> oracle = oracle_gradients(one, in, d_o, got.block_idx);
  TORCH_CHECK(oracle.size() == inputs.size(), "suites::check_gradients: the oracle has ",
              oracle.size(), " gradients for ", inputs.size(), " inputs");
  const std::vector<Tensor> plain = dense_gradients(one.config, in, d_o, got.block_idx);
  for (const Judged& judged : judged_gradients(leaves, one.type != at::kDouble)) {
    const GradientPlace place = place_of(judged.name);
    CompareContext context;
    context.plain = joined(judged, plain);
    context.max_logit = max_logit(got);
    context.terms = terms_of(judged.name, in, d_o);
    const Tolerance& rule = tolerance(place.op, place.tensor, one.type);
    checks.push_back(
        make_check(std::string("oracle/") + place.family + "/" + dtype_name(one.type) + "/d_" +
                       judged.name + "/" + one.name,
                   compare(joined(judged, actual), joined(judged, oracle), rule, context)));
  }
}

Checks guarded_gradients(const Candidate& candidate, const OperatorCase& one) {
  const auto threw = [&](const std::string& what) {
    return make_check("oracle/gradients/" + dtype_name(one.type) + "/threw/" + one.name, false,
                      code::kOracleMismatch, what);
  };
  Checks checks;
  try {
    gradient_checks(candidate, one, checks);
  } catch (const c10::Error& error) {
    checks.push_back(threw(error.what_without_backtrace()));
  } catch (const std::exception& error) {
    checks.push_back(threw(error.what()));
  }
  return checks;
}

}  // namespace

Checks check_gradients(const Candidate& candidate, const OperatorCase& one) {
  return confirmed([&](const OperatorCase& drawn) { return guarded_gradients(candidate, drawn); },
                   one);
}

}  // namespace suites

// Gradients against the oracle's plain-loop backward; declared in operator_checks.h.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "nsa/reference/backward.h"
#include "suites/conformance/case_inputs.h"
#include "suites/conformance/convert.h"
#include "suites/conformance/operator_checks.h"
#include "suites/conformance/stages.h"

namespace suites {
namespace {

using at::Tensor;

/// Where the gradient of an input stands: family of the check, and key of the tolerance table.
struct Place {
  const char *family, *op, *tensor;
};

Place place_of(const std::string& input) {
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

DenseInputs in_fp64(const DenseInputs& inputs) {
  DenseInputs wide = inputs;
  for (auto& [name, tensor] : named_inputs(wide)) *tensor = tensor->to(at::kDouble);
  return wide;
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

/// Largest error of the plain computation a tensor, over fresh draws of the configuration; its fp64
/// twin is the truth.
std::vector<double> plain_errors(const OperatorCase& one) {
  constexpr uint64_t kDraws = 3;
  std::vector<double> errors;
  for (uint64_t draw = 1; draw <= kDraws; ++draw) {
    DenseInputs in =
        make_inputs(one.config, one.kind, one.seed + draw * 7919, one.type, one.device);
    at::Generator g = make_generator(one.seed + draw);
    const DenseOutputs forward = dense_nsa(one.config, in);
    const Tensor d_o = make_data(forward.o.sizes(), DataKind::kNormal, g, one.type).to(one.device);
    const auto plain = dense_gradients(one.config, in, d_o, forward.block_idx);
    const auto truth =
        dense_gradients(one.config, in_fp64(in), d_o.to(at::kDouble), forward.block_idx);
    const auto names = named_inputs(in);
    errors.resize(names.size());
    for (size_t i = 0; i < names.size(); ++i) {
      const Place place = place_of(names[i].first);
      errors[i] =
          std::max(errors[i], row_relative_error(plain[i], truth[i],
                                                 tolerance(place.op, place.tensor, one.type),
                                                 terms_of(names[i].first, in, d_o)));
    }
  }
  return errors;
}

void gradient_checks(const Candidate& candidate, const OperatorCase& one, Checks& checks) {
  const DenseInputs in = make_inputs(one.config, one.kind, one.seed, one.type, one.device);
  at::Generator g = make_generator(one.seed + 2);
  DenseInputs leaves = as_leaves(in);
  const StageOutputs got = run_stages(candidate, one.config, leaves);
  const Tensor d_o = make_data(got.o.sizes(), DataKind::kNormal, g, one.type).to(one.device);
  const std::vector<Tensor> actual = gradients(got.o, d_o, tensors_of(leaves));
  const std::vector<Tensor> oracle = oracle_gradients(one, in, d_o, got.block_idx);
  const bool fp64 = one.type == at::kDouble;
  const std::vector<Tensor> plain =
      fp64 ? actual : dense_gradients(one.config, in, d_o, got.block_idx);
  const std::vector<double> errors = fp64 ? std::vector<double>(actual.size()) : plain_errors(one);
  const auto names = named_inputs(leaves);
  TORCH_CHECK(oracle.size() == names.size(), "suites::check_gradients: the oracle has ",
              oracle.size(), " gradients for ", names.size(), " inputs");
  for (size_t i = 0; i < names.size(); ++i) {
    const auto& [name, tensor] = names[i];
    const Place place = place_of(name);
    CompareContext context;
    if (!fp64) context.plain = plain[i];
    context.plain_err = errors[i];
    context.max_logit = max_logit(got);
    context.terms = terms_of(name, in, d_o);
    checks.push_back(make_check(std::string("oracle/") + place.family + "/" + dtype_name(one.type) +
                                    "/d_" + name + "/" + one.name,
                                compare(or_zeros(actual[i], *tensor), oracle[i],
                                        tolerance(place.op, place.tensor, one.type), context)));
  }
}

}  // namespace

Checks check_gradients(const Candidate& candidate, const OperatorCase& one) {
  Checks checks;
  try {
    gradient_checks(candidate, one, checks);
  } catch (const c10::Error& error) {
    checks.push_back(make_check("oracle/gradients/" + dtype_name(one.type) + "/threw/" + one.name,
                                false, code::kOracleMismatch, error.what_without_backtrace()));
  } catch (const std::exception& error) {
    checks.push_back(make_check("oracle/gradients/" + dtype_name(one.type) + "/threw/" + one.name,
                                false, code::kOracleMismatch, error.what()));
  }
  return checks;
}

}  // namespace suites

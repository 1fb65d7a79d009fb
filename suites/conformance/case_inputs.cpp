#include "suites/conformance/case_inputs.h"

#include <ATen/ATen.h>

#include <cmath>

namespace suites {
namespace {

using at::Tensor;

/// Normal weights whose products keep the size of their inputs; small integers stay what they are.
Tensor weight(at::IntArrayRef sizes, double fan_in, DataKind kind, at::Generator& generator) {
  if (kind == DataKind::kSmallInteger) return make_data(sizes, kind, generator, at::kDouble);
  return make_data(sizes, DataKind::kNormal, generator, at::kDouble) / std::sqrt(fan_in);
}

DensePhi make_phi(const CaseConfig& c, int64_t dim, DataKind kind, at::Generator& generator) {
  const int64_t l = c.block_size;
  DensePhi phi;
  if (c.phi == Phi::kConv) phi.conv = weight({dim, l}, static_cast<double>(l), kind, generator);
  if (c.phi == Phi::kMlp) {
    phi.pe = weight({l, dim}, 4, kind, generator);
    phi.w1 = weight({dim, l * dim}, static_cast<double>(l * dim), kind, generator);
    phi.b1 = weight({dim}, 4, kind, generator);
    phi.w2 = weight({dim, dim}, static_cast<double>(dim), kind, generator);
    phi.b2 = weight({dim}, 4, kind, generator);
  }
  return phi;
}

}  // namespace

std::vector<std::pair<std::string, Tensor*>> named_inputs(DenseInputs& in) {
  std::vector<std::pair<std::string, Tensor*>> all = {{"q", &in.q},
                                                      {"k_cmp_src", &in.k_cmp_src},
                                                      {"v_cmp_src", &in.v_cmp_src},
                                                      {"k_sel", &in.k_sel},
                                                      {"v_sel", &in.v_sel},
                                                      {"k_win", &in.k_win},
                                                      {"v_win", &in.v_win},
                                                      {"gate", &in.gate}};
  for (const auto& [name, phi] : {std::pair{"phi_k", &in.phi_k}, std::pair{"phi_v", &in.phi_v}}) {
    const std::string prefix = std::string(name) + ".";
    for (const auto& [part, tensor] :
         {std::pair{"conv", &phi->conv}, std::pair{"pe", &phi->pe}, std::pair{"w1", &phi->w1},
          std::pair{"b1", &phi->b1}, std::pair{"w2", &phi->w2}, std::pair{"b2", &phi->b2}})
      if (tensor->defined()) all.emplace_back(prefix + part, tensor);
  }
  return all;
}

DenseInputs make_inputs(const CaseConfig& c, DataKind kind, uint64_t seed, at::ScalarType type,
                        at::Device device) {
  at::Generator g = make_generator(seed);
  const int64_t b = c.batch, s = c.tokens, kv = c.num_kv_heads, dk = c.qk_head_dim,
                dv = c.v_head_dim;
  const auto keys = [&] { return make_data({b, s, kv, dk}, kind, g, at::kDouble); };
  // Huge logits come from q and k; v keeps its size, or the comparison would only see v.
  const DataKind v_kind = kind == DataKind::kHugeLogits ? DataKind::kNormal : kind;
  const auto values = [&] { return make_data({b, s, kv, dv}, v_kind, g, at::kDouble); };
  DenseInputs in;
  in.q = make_data({b, s, c.num_heads, dk}, kind, g, at::kDouble);
  in.k_cmp_src = keys();
  in.v_cmp_src = values();
  in.k_sel = keys();
  in.v_sel = values();
  in.k_win = keys();
  in.v_win = values();
  in.gate = make_data({b, s, c.gate_per_kv_head ? kv : c.num_heads, 3}, DataKind::kNormal, g,
                      at::kDouble);
  if (c.gate == GateKind::kNone) in.gate = at::sigmoid(in.gate);
  in.phi_k = make_phi(c, dk, kind, g);
  in.phi_v = make_phi(c, dv, kind, g);
  for (auto& [name, tensor] : named_inputs(in)) *tensor = tensor->to(device, type);
  return in;
}

double largest_norm(const Tensor& x) {
  return x.numel() == 0 ? 0 : x.detach().to(at::kDouble).norm(2, -1).max().item<double>();
}

DenseInputs as_leaves(const DenseInputs& inputs) {
  DenseInputs leaves = inputs;
  for (auto& [name, tensor] : named_inputs(leaves))
    *tensor = tensor->detach().clone().requires_grad_(true);
  return leaves;
}

}  // namespace suites

#include "suites/conformance/case_inputs.h"

#include <ATen/ATen.h>

#include <array>
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

/// q and K of kHugeLogits: after rotation every key is a neighbour of one vector u of its sequence
/// and head, and q points along it, so that all logits are about 1e4 and compete with each other.
/// Random huge logits would let one key win every row, and nothing would be rounded.
class HugeLogits {
 public:
  HugeLogits(const CaseConfig& config, at::Generator& generator)
      : config_(config),
        generator_(generator),
        u_(normal({config.batch, 1, config.num_kv_heads, config.qk_head_dim})) {}
  Tensor q() const {
    const Tensor along = u_.repeat_interleave(config_.group_size(), 2);
    return placed(along + normal(shape(config_.num_heads)) * 0.3, config_.rope) * 100;
  }
  Tensor keys() const { return placed(near(), config_.rope); }
  /// Keys that are pooled. Pooled at their block's start they would be rotated apart: they are
  /// small.
  Tensor pooled() const {
    if (config_.rope == RopeKind::kBlockStart) return normal(shape(config_.num_kv_heads)) * 0.01;
    return placed(near(), config_.rope);
  }

 private:
  std::vector<int64_t> shape(int64_t heads) const {
    return {config_.batch, config_.tokens, heads, config_.qk_head_dim};
  }
  Tensor normal(at::IntArrayRef sizes) const {
    return make_data(sizes, DataKind::kNormal, generator_, at::kDouble);
  }
  Tensor near() const { return u_ * 100 + normal(shape(config_.num_kv_heads)) * 0.01; }
  Tensor placed(const Tensor& x, RopeKind rope) const {
    const Tensor back = -at::arange(x.size(1), at::TensorOptions(at::kDouble));
    return rope == RopeKind::kNone ? x : dense_rope(x, back, config_.rope_base);
  }

  const CaseConfig& config_;
  at::Generator& generator_;
  Tensor u_;
};

/// q and K of kTies: in even sequences q is 0, in odd ones a key is repeated.
void make_ties(DenseInputs& in, const CaseConfig& c, at::Generator& generator) {
  in.q.slice(0, 0, c.batch, 2).zero_();
  for (Tensor* k : {&in.k_cmp_src, &in.k_sel, &in.k_win}) {
    const Tensor one = make_data(k->sizes(), DataKind::kTies, generator, at::kDouble);
    k->slice(0, 1, c.batch, 2).copy_(one.slice(0, 1, c.batch, 2));
  }
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
  // Values stay normal where q and k make the case, or the comparison would only see them.
  const bool own_kind = kind == DataKind::kSmallInteger || kind == DataKind::kTinyLogits;
  const DataKind k_kind = own_kind ? kind : DataKind::kNormal;
  const DataKind v_kind = kind == DataKind::kSmallInteger ? kind : DataKind::kNormal;
  const auto keys = [&] { return make_data({b, s, kv, dk}, k_kind, g, at::kDouble); };
  const auto values = [&] { return make_data({b, s, kv, dv}, v_kind, g, at::kDouble); };
  DenseInputs in;
  in.q = make_data({b, s, c.num_heads, dk}, k_kind, g, at::kDouble);
  in.k_cmp_src = keys();
  in.v_cmp_src = values();
  in.k_sel = keys();
  in.v_sel = values();
  in.k_win = keys();
  in.v_win = values();
  if (kind == DataKind::kTies) make_ties(in, c, g);
  if (kind == DataKind::kHugeLogits) {
    const HugeLogits huge(c, g);
    in.q = huge.q();
    in.k_cmp_src = huge.pooled();
    in.k_sel = huge.keys();
    in.k_win = huge.keys();
  }
  in.gate = make_data({b, s, c.gate_per_kv_head ? kv : c.num_heads, 3}, DataKind::kNormal, g,
                      at::kDouble);
  if (c.gate == GateKind::kNone) in.gate = at::sigmoid(in.gate);
  in.phi_k = make_phi(c, dk, kind, g);
  in.phi_v = make_phi(c, dv, kind, g);
  for (auto& [name, tensor] : named_inputs(in)) *tensor = tensor->to(device, type);
  return in;
}

Layout layout_of(int64_t index) {
  constexpr std::array kLayouts = {Layout::kContiguous, Layout::kStrided, Layout::kContiguous,
                                   Layout::kSliced, Layout::kExpanded};
  return kLayouts[static_cast<size_t>(index) % kLayouts.size()];
}

DenseInputs inputs_of(const OperatorCase& one) {
  return lay_out(make_inputs(one.config, one.kind, one.seed, one.type, one.device), one.layout);
}

std::vector<Tensor*> token_inputs(DenseInputs& in) {
  return {&in.q,     &in.k_cmp_src, &in.v_cmp_src, &in.k_sel,
          &in.v_sel, &in.k_win,     &in.v_win,     &in.gate};
}

DenseInputs lay_out(const DenseInputs& inputs, Layout layout) {
  DenseInputs out = inputs;
  for (Tensor* x : token_inputs(out)) *x = lay_out(*x, layout);
  return out;
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

#include "nsa/ops/gate/gate.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>

#include "nsa/ops/common/check.h"
#include "nsa/ops/common/operator_call.h"
#include "nsa/ops/gate/fused_combine.h"

namespace nsa {
namespace {

std::string text_of(at::IntArrayRef sizes) {
  std::ostringstream text;
  text << sizes;
  return text.str();
}

at::Tensor gate_activate_op(const at::Tensor& logits, c10::string_view activation) {
  const ArgumentCheck check("gate_activate");
  check.floating("logits", logits);
  check.least_rank("logits", logits, 1, "[..., 3]");
  if (logits.size(-1) != 3) {
    check.fail("last size of logits", "3", std::to_string(logits.size(-1)));
  }
  const at::Tensor values = logits.to(accumulation_type(logits.scalar_type()));
  switch (parse_gate_activation(std::string(activation))) {
    case GateActivation::kSoftmax:
      return at::softmax(values, -1);
    case GateActivation::kSigmoid:
      return at::sigmoid(values);
    case GateActivation::kNone:
      return values;
  }
  TORCH_INTERNAL_ASSERT(false, "activation without a formula");
}

at::Tensor gate_combine_op(const at::Tensor& o_cmp, const at::Tensor& o_sel,
                           const at::Tensor& o_win, const at::Tensor& gates) {
  const ArgumentCheck check("gate_combine");
  check.floating("o_cmp", o_cmp);
  check.floating("gates", gates);
  check.least_rank("o_cmp", o_cmp, 2, "[..., Hq, dv]");
  for (const auto& [name, o] : {std::pair{"o_sel", &o_sel}, std::pair{"o_win", &o_win}}) {
    check.defined(name, *o);
    check.same_dtype(name, *o, "o_cmp", o_cmp);
    check.same_device(name, *o, "o_cmp", o_cmp);
    check.same_shape(name, *o, "o_cmp", o_cmp);
  }
  check.same_device("gates", gates, "o_cmp", o_cmp);
  const int64_t heads = o_cmp.size(-2);
  std::vector<int64_t> want = o_cmp.sizes().vec();
  want.back() = 3;
  check.rank("gates", gates, o_cmp.dim(), "[..., Hq or Hkv, 3]");
  const int64_t gate_heads = gates.size(-2);
  if (gate_heads < 1 || heads % gate_heads != 0) {
    check.fail("heads of gates", "a divisor of Hq = " + std::to_string(heads),
               std::to_string(gate_heads));
  }
  want[want.size() - 2] = gate_heads;
  if (gates.sizes() != at::IntArrayRef(want)) {
    check.fail("gates", "of shape " + text_of(want) + " to fit o_cmp",
               "shape " + text_of(gates.sizes()));
  }

  if (combines_by_kernel(o_cmp, gates) && gates.scalar_type() == at::kFloat)
    return combine_by_kernel(o_cmp, o_sel, o_win, gates);
  const at::ScalarType accumulation = accumulation_type(o_cmp.scalar_type());
  const at::Tensor g = gates.to(accumulation).unsqueeze(-2);  // [..., gate_heads, 1, 3]
  const auto term = [&](const at::Tensor& o, int64_t branch) {
    return o.to(accumulation).unflatten(-2, {gate_heads, heads / gate_heads}) *
           g.narrow(-1, branch, 1);
  };
  return (term(o_cmp, 0) + term(o_sel, 1) + term(o_win, 2)).flatten(-3, -2).to(o_cmp.scalar_type());
}

at::Tensor gate_mlp_op(const at::Tensor& q, const at::Tensor& w1, const at::Tensor& b1,
                       const at::Tensor& w2, const at::Tensor& b2, int64_t num_kv_heads) {
  const ArgumentCheck check("gate_mlp");
  check.floating("q", q);
  check.at_least("num_kv_heads", num_kv_heads, 1);
  check.least_rank("q", q, 2, "[..., Hq, dk]");
  check.multiple("Hq", q.size(-2), num_kv_heads, "num_kv_heads");
  check.sizes("w1", w1, {-1, q.size(-1)}, "[H, dk]");
  check.sizes("b1", b1, {w1.size(0)}, "[H]");
  check.sizes("w2", w2, {3, w1.size(0)}, "[3, H]");
  check.sizes("b2", b2, {3}, "[3]");
  for (const auto& [name, weight] :
       {std::pair{"w1", &w1}, std::pair{"b1", &b1}, std::pair{"w2", &w2}, std::pair{"b2", &b2}}) {
    check.floating(name, *weight);
    check.same_device(name, *weight, "q", q);
  }
  // In fp64 on CUDA: logits of a row may cancel, and the order of cuBLAS's fp32 sums is not known.
  const at::ScalarType sums = q.is_cuda() ? at::kDouble : sum_type(q);
  const at::Tensor mean = q.unflatten(-2, {num_kv_heads, q.size(-2) / num_kv_heads})
                              .mean({-2}, /*keepdim=*/false, sums);
  const at::Tensor hidden = at::silu(at::linear(mean, w1.to(sums), b1.to(sums)));
  return at::linear(hidden, w2.to(sums), b2.to(sums)).to(accumulation_type(q.scalar_type()));
}

}  // namespace

at::Tensor gate_activate(const at::Tensor& logits, GateActivation activation) {
  static const auto op = find_operator<decltype(gate_activate_op)>("nsa::gate_activate");
  return op.call(logits, to_string(activation));
}

at::Tensor gate_combine(const at::Tensor& o_cmp, const at::Tensor& o_sel, const at::Tensor& o_win,
                        const at::Tensor& gates) {
  static const auto op = find_operator<decltype(gate_combine_op)>("nsa::gate_combine");
  return op.call(o_cmp, o_sel, o_win, gates);
}

const char* gate_combine_backend(const at::Tensor& o_cmp, const at::Tensor& gates) {
  const bool fused = combines_by_kernel(o_cmp, gates) && gates.scalar_type() == at::kFloat;
  return fused ? "fused" : "plain";
}

GateWeights make_gate_weights(int64_t qk_head_dim, at::TensorOptions options) {
  const int64_t hidden = std::max<int64_t>(1, qk_head_dim / 2);
  const double first = 1.0 / std::sqrt(static_cast<double>(qk_head_dim));
  const double second = 0.1 * std::sqrt(6.0 / static_cast<double>(hidden + 3));
  return {at::empty({hidden, qk_head_dim}, options).uniform_(-first, first),
          at::empty({hidden}, options).uniform_(-first, first),
          at::empty({3, hidden}, options).uniform_(-second, second), at::zeros({3}, options)};
}

at::Tensor gate_mlp(const at::Tensor& q, const GateWeights& weights, int64_t num_kv_heads) {
  static const auto op = find_operator<decltype(gate_mlp_op)>("nsa::gate_mlp");
  return op.call(q, weights.w1, weights.b1, weights.w2, weights.b2, num_kv_heads);
}

}  // namespace nsa

TORCH_LIBRARY_FRAGMENT(nsa, m) {
  m.def("gate_activate(Tensor logits, str activation) -> Tensor", TORCH_FN(nsa::gate_activate_op));
  m.def("gate_combine(Tensor o_cmp, Tensor o_sel, Tensor o_win, Tensor gates) -> Tensor",
        TORCH_FN(nsa::gate_combine_op));
  m.def(
      "gate_mlp(Tensor q, Tensor w1, Tensor b1, Tensor w2, Tensor b2, int num_kv_heads) -> Tensor",
      TORCH_FN(nsa::gate_mlp_op));
}

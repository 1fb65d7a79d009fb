#include "nsa/reference/passes/backward.h"

#include "nsa/reference/branches/cmp_attention.h"
#include "nsa/reference/branches/sel_attention.h"
#include "nsa/reference/branches/win_attention.h"
#include "nsa/reference/passes/forward.h"
#include "nsa/reference/stages/gate.h"
#include "nsa/reference/stages/rope.h"

namespace nsa::reference {
namespace {

Tensor<double> rotated_back(const Config& c, const Tensor<double>& d) {
  return c.rope == Rope::kNone ? d : rope_backward(d, c.rope_base, c.rope_pairs);
}

Tensor<double> sum(const Tensor<double>& x, const Tensor<double>& y, const Tensor<double>& z) {
  Tensor<double> total = x;
  for (size_t i = 0; i < total.values().size(); ++i)
    total.values()[i] += y.values()[i] + z.values()[i];
  return total;
}

}  // namespace

Tensor<double> rope_backward(const Tensor<double>& d_rotated, double base, RopePairs pairs) {
  require_rank("rope_backward", "d_rotated", d_rotated, 4, "[B,S,H,dk]");
  const std::vector<double> frequency = rope_frequencies(d_rotated.size(3), base);
  Tensor<double> d = d_rotated;
  for (int64_t b = 0; b < d.size(0); ++b)
    for (int64_t t = 0; t < d.size(1); ++t)
      for (int64_t h = 0; h < d.size(2); ++h) rotate(d.row(b, t, h), -t, frequency, pairs);
  return d;
}

Inputs backward(const Config& c, const Inputs& x, const Tensor<double>& d_o, const Given& given) {
  const Outputs out = forward(c, x, given);
  const auto gate = combine_backward(c, x.gates, out.o_cmp, out.o_sel, out.o_win, d_o);
  const auto cmp = cmp_attention_backward(c, out.q_rot, out.k_cmp, out.v_cmp, gate.o_cmp);
  const auto sel = sel_attention_backward(out.q_rot, rotated(c, x.k_sel, given.k_sel_rot), x.v_sel,
                                          out.ranges, gate.o_sel, c.scale_sel);
  const auto win = win_attention_backward(c, out.q_rot, rotated(c, x.k_win, given.k_win_rot),
                                          x.v_win, gate.o_win);
  const auto keys = compress_keys_backward(c, x.k_cmp_src, x.phi_k, cmp.k);
  const auto values = compress_values_backward(c, x.v_cmp_src, x.phi_v, cmp.v);

  Inputs d;
  d.q = rotated_back(c, sum(cmp.q, sel.q, win.q));
  d.k_cmp_src = keys.source, d.phi_k = keys.weights;
  d.v_cmp_src = values.source, d.phi_v = values.weights;
  d.k_sel = rotated_back(c, sel.k), d.v_sel = sel.v;
  d.k_win = rotated_back(c, win.k), d.v_win = win.v;
  d.gates = gate.gates;
  return d;
}

}  // namespace nsa::reference

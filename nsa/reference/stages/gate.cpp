#include "nsa/reference/stages/gate.h"

#include <algorithm>
#include <cmath>

#include "nsa/reference/stages/linear.h"

namespace nsa::reference {
namespace {

void check_shapes(const Config& c, const Tensor<double>& gates, const Tensor<double>& o_cmp,
                  const Tensor<double>& o_sel, const Tensor<double>& o_win) {
  require_rank("combine", "o_cmp", o_cmp, 4, "[B,S,Hq,dv]");
  require_shape("combine", "o_cmp", o_cmp,
                {o_cmp.size(0), o_cmp.size(1), c.num_heads, o_cmp.size(3)});
  require_shape("combine", "o_sel", o_sel, o_cmp.shape());
  require_shape("combine", "o_win", o_win, o_cmp.shape());
  require_rank("combine", "gates", gates, 4, "[B,S,Hq,3] or [B,S,Hkv,3]");
  const bool per_group = gates.size(2) == c.num_kv_heads;
  require_shape("combine", "gates", gates,
                {o_cmp.size(0), o_cmp.size(1), per_group ? c.num_kv_heads : c.num_heads, 3});
}

/// d_logits from the activated values g and their gradients.
std::vector<double> activate_backward(Gate gate, const std::vector<double>& g,
                                      const std::vector<double>& d_g) {
  double mean = 0;  // softmax only: sum of g * d_g
  for (size_t k = 0; k < 3; ++k) mean += g[k] * d_g[k];
  std::vector<double> d_logits = d_g;
  for (size_t k = 0; k < 3; ++k) {
    if (gate == Gate::kSigmoid) d_logits[k] = d_g[k] * g[k] * (1.0 - g[k]);
    if (gate == Gate::kSoftmax) d_logits[k] = g[k] * (d_g[k] - mean);
  }
  return d_logits;
}

}  // namespace

std::vector<double> activate(Gate gate, std::span<const double> logits) {
  std::vector<double> g(logits.begin(), logits.end());
  if (gate == Gate::kSigmoid)
    for (double& value : g) value = sigmoid(value);
  if (gate == Gate::kSoftmax) {
    const double largest = std::max({g[0], g[1], g[2]});
    for (double& value : g) value = std::exp(value - largest);
    const double sum = g[0] + g[1] + g[2];
    for (double& value : g) value /= sum;
  }
  return g;
}

Tensor<double> activate(Gate gate, const Tensor<double>& gates) {
  require_rank("activate", "gates", gates, 4, "[B,S,H,3]");
  require_shape("activate", "gates", gates, {gates.size(0), gates.size(1), gates.size(2), 3});
  Tensor<double> out = gates;
  for (int64_t b = 0; b < gates.size(0); ++b)
    for (int64_t t = 0; t < gates.size(1); ++t)
      for (int64_t h = 0; h < gates.size(2); ++h)
        std::ranges::copy(activate(gate, gates.row(b, t, h)), out.row(b, t, h).begin());
  return out;
}

int64_t gate_of_head(const Config& c, int64_t num_gates, int64_t head) {
  return num_gates == c.num_heads ? head : head / c.group_size();
}

void combine_head(Gate gate, std::span<const double> gate_row, std::span<const double> o_cmp,
                  std::span<const double> o_sel, std::span<const double> o_win,
                  std::span<double> o) {
  const std::vector<double> g = activate(gate, gate_row);
  for (size_t e = 0; e < o.size(); ++e) o[e] = g[0] * o_cmp[e] + g[1] * o_sel[e] + g[2] * o_win[e];
}

Tensor<double> combine(const Config& c, const Tensor<double>& gates, const Tensor<double>& o_cmp,
                       const Tensor<double>& o_sel, const Tensor<double>& o_win) {
  check_shapes(c, gates, o_cmp, o_sel, o_win);
  Tensor<double> o(o_cmp.shape());
  for (int64_t b = 0; b < o.size(0); ++b)
    for (int64_t t = 0; t < o.size(1); ++t)
      for (int64_t h = 0; h < o.size(2); ++h) {
        const int64_t row = gate_of_head(c, gates.size(2), h);
        combine_head(c.gate, gates.row(b, t, row), o_cmp.row(b, t, h), o_sel.row(b, t, h),
                     o_win.row(b, t, h), o.row(b, t, h));
      }
  return o;
}

CombineGradients combine_backward(const Config& c, const Tensor<double>& gates,
                                  const Tensor<double>& o_cmp, const Tensor<double>& o_sel,
                                  const Tensor<double>& o_win, const Tensor<double>& d_o) {
  check_shapes(c, gates, o_cmp, o_sel, o_win);
  require_shape("combine", "d_o", d_o, o_cmp.shape());
  CombineGradients d{Tensor<double>(gates.shape()), d_o, d_o, d_o};
  for (int64_t b = 0; b < d_o.size(0); ++b)
    for (int64_t t = 0; t < d_o.size(1); ++t)
      for (int64_t h = 0; h < d_o.size(2); ++h) {
        const int64_t row = gate_of_head(c, gates.size(2), h);
        const std::vector<double> g = activate(c.gate, gates.row(b, t, row));
        std::vector<double> d_g(3, 0.0);
        for (int64_t e = 0; e < d_o.size(3); ++e) {
          const double d_out = d_o(b, t, h, e);
          d_g[0] += d_out * o_cmp(b, t, h, e);
          d_g[1] += d_out * o_sel(b, t, h, e);
          d_g[2] += d_out * o_win(b, t, h, e);
          d.o_cmp(b, t, h, e) = g[0] * d_out;
          d.o_sel(b, t, h, e) = g[1] * d_out;
          d.o_win(b, t, h, e) = g[2] * d_out;
        }
        const std::vector<double> d_logits = activate_backward(c.gate, g, d_g);
        for (size_t k = 0; k < 3; ++k) d.gates(b, t, row, k) += d_logits[k];
      }
  return d;
}

}  // namespace nsa::reference

#pragma once
#include <span>
#include <vector>

#include "nsa/reference/config.h"
#include "nsa/reference/tensor.h"

namespace nsa::reference {

/// The three gate values of one head, order cmp, sel, win.
std::vector<double> activate(Gate gate, std::span<const double> logits);

/// gates [B,S,H,3] -> activated, same shape.
Tensor<double> activate(Gate gate, const Tensor<double>& gates);

/// Paper Eq. 5 for one head: writes o [dv] from the gate row (activated here) and the branches.
void combine_head(Gate gate, std::span<const double> gate_row, std::span<const double> o_cmp,
                  std::span<const double> o_sel, std::span<const double> o_win,
                  std::span<double> o);

/// Paper Eq. 5: o = g_cmp*o_cmp + g_sel*o_sel + g_win*o_win. gates [B,S,Hq,3] or [B,S,Hkv,3] (one
/// value for all heads of the group), activated here by config.gate; o_* [B,S,Hq,dv].
Tensor<double> combine(const Config& config, const Tensor<double>& gates,
                       const Tensor<double>& o_cmp, const Tensor<double>& o_sel,
                       const Tensor<double>& o_win);

/// Which row of a gate tensor with `num_gates` heads belongs to query head h.
int64_t gate_of_head(const Config& config, int64_t num_gates, int64_t head);

/// Gradients of `combine` for d_o [B,S,Hq,dv].
struct CombineGradients {
  Tensor<double> gates, o_cmp, o_sel, o_win;
};
CombineGradients combine_backward(const Config& config, const Tensor<double>& gates,
                                  const Tensor<double>& o_cmp, const Tensor<double>& o_sel,
                                  const Tensor<double>& o_win, const Tensor<double>& d_o);

}  // namespace nsa::reference

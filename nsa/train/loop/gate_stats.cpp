#include "nsa/train/loop/gate_stats.h"

#include <ATen/ATen.h>

namespace nsa::train {

at::Tensor reduce_gates(const std::vector<at::Tensor>& gates) {
  std::vector<at::Tensor> rows;
  for (const at::Tensor& layer : gates) rows.push_back(layer.reshape({-1, 3}));
  const at::Tensor all = at::stack(rows).to(at::kDouble);  // [L, rows, 3]
  const at::Tensor share = all / all.sum(-1, true).clamp_min(1e-30);
  const at::Tensor layer_entropy = -at::xlogy(share, share).sum(-1).mean(-1);     // [L]
  const at::Tensor spread = std::get<0>(all.std(1, /*unbiased=*/false).max(-1));  // [L]
  const at::Tensor summary =
      at::stack({layer_entropy.mean(), layer_entropy.min(), layer_entropy.max(), spread.min()});
  return at::cat({all.mean(at::IntArrayRef{0, 1}), summary});
}

GateStats gate_stats(const double* v) { return {v[0], v[1], v[2], v[3], v[4], v[5], v[6]}; }

}  // namespace nsa::train

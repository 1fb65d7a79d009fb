#include "nsa/reference/stages/gate_mlp.h"

#include <algorithm>

#include "nsa/reference/stages/linear.h"

namespace nsa::reference {
namespace {

void check_shapes(const Tensor<double>& q, int64_t num_kv_heads, const GateMlpWeights& w) {
  require_rank("gate_logits", "q", q, 4, "[B,S,Hq,dk]");
  if (num_kv_heads < 1 || q.size(2) % num_kv_heads != 0)
    reject("gate_logits", "num_kv_heads", "a divisor of num_heads=" + std::to_string(q.size(2)),
           std::to_string(num_kv_heads));
  require_rank("gate_logits", "w1", w.w1, 2, "[hidden,dk]");
  const int64_t hidden = w.w1.size(0);
  require_shape("gate_logits", "w1", w.w1, {hidden, q.size(3)});
  require_shape("gate_logits", "b1", w.b1, {hidden});
  require_shape("gate_logits", "w2", w.w2, {3, hidden});
  require_shape("gate_logits", "b2", w.b2, {3});
}

std::vector<double> group_mean(const Tensor<double>& q, int64_t b, int64_t t, int64_t kv_head,
                               int64_t group_size) {
  std::vector<double> mean(static_cast<size_t>(q.size(3)), 0.0);
  for (size_t e = 0; e < mean.size(); ++e) {
    for (int64_t g = 0; g < group_size; ++g) mean[e] += q(b, t, kv_head * group_size + g, e);
    mean[e] /= static_cast<double>(group_size);
  }
  return mean;
}

std::vector<double> mapped(std::vector<double> x, double (*f)(double)) {
  std::ranges::transform(x, x.begin(), f);
  return x;
}

}  // namespace

Tensor<double> gate_logits(const Tensor<double>& q, int64_t num_kv_heads, const GateMlpWeights& w) {
  check_shapes(q, num_kv_heads, w);
  Tensor<double> logits({q.size(0), q.size(1), num_kv_heads, 3});
  for (int64_t b = 0; b < q.size(0); ++b)
    for (int64_t t = 0; t < q.size(1); ++t)
      for (int64_t j = 0; j < num_kv_heads; ++j) {
        const auto x = group_mean(q, b, t, j, q.size(2) / num_kv_heads);
        const auto hidden = mapped(linear(w.w1, w.b1, x), silu);
        std::ranges::copy(linear(w.w2, w.b2, hidden), logits.row(b, t, j).begin());
      }
  return logits;
}

GateMlpGradients gate_logits_backward(const Tensor<double>& q, int64_t num_kv_heads,
                                      const GateMlpWeights& w, const Tensor<double>& d_logits) {
  check_shapes(q, num_kv_heads, w);
  require_shape("gate_logits", "d_logits", d_logits, {q.size(0), q.size(1), num_kv_heads, 3});
  const int64_t G = q.size(2) / num_kv_heads;
  GateMlpGradients d{Tensor<double>(q.shape()),
                     {Tensor<double>(w.w1.shape()), Tensor<double>(w.b1.shape()),
                      Tensor<double>(w.w2.shape()), Tensor<double>(w.b2.shape())}};
  for (int64_t b = 0; b < q.size(0); ++b)
    for (int64_t t = 0; t < q.size(1); ++t)
      for (int64_t j = 0; j < num_kv_heads; ++j) {
        const auto x = group_mean(q, b, t, j, G);
        const auto before = linear(w.w1, w.b1, x);
        auto d_hidden = linear_backward(w.w2, mapped(before, silu), d_logits.row(b, t, j),
                                        d.weights.w2, d.weights.b2);
        for (size_t o = 0; o < before.size(); ++o) d_hidden[o] *= silu_derivative(before[o]);
        const auto d_x = linear_backward(w.w1, x, d_hidden, d.weights.w1, d.weights.b1);
        for (int64_t g = 0; g < G; ++g)
          for (size_t e = 0; e < d_x.size(); ++e)
            d.q(b, t, j * G + g, e) = d_x[e] / static_cast<double>(G);
      }
  return d;
}

}  // namespace nsa::reference

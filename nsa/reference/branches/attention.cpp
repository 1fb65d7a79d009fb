#include "nsa/reference/branches/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace nsa::reference {
namespace {

void check_shapes(const std::string& op, const Tensor<double>& q, const Tensor<double>& k,
                  const Tensor<double>& v) {
  require_rank(op, "q", q, 4, "[B,S,Hq,dk]");
  require_rank(op, "k", k, 4, "[B,N,Hkv,dk]");
  require_rank(op, "v", v, 4, "[B,N,Hkv,dv]");
  require_shape(op, "k", k, {q.size(0), k.size(1), k.size(2), q.size(3)});
  require_shape(op, "v", v, {q.size(0), k.size(1), k.size(2), v.size(3)});
  if (q.size(3) < 1) reject(op, "qk_head_dim", "at least 1", std::to_string(q.size(3)));
  if (k.size(2) < 1 || q.size(2) % k.size(2) != 0)
    reject(op, "num_kv_heads", "a divisor of num_heads=" + std::to_string(q.size(2)),
           std::to_string(k.size(2)));
}

double dot(std::span<const double> x, std::span<const double> y) {
  double sum = 0;
  for (size_t e = 0; e < x.size(); ++e) sum += x[e] * y[e];
  return sum;
}

double scale_or_default(std::optional<double> scale, size_t dk) {
  return scale.value_or(1.0 / std::sqrt(static_cast<double>(dk)));
}

KeyValueSource rows_of(const Tensor<double>& k, const Tensor<double>& v, int64_t b,
                       int64_t kv_head) {
  return KeyValueSource([&k, &v, b, kv_head](int64_t i) {
    return KeyValue{k.row(b, i, kv_head), v.row(b, i, kv_head)};
  });
}

/// Turns logits into probabilities in place; returns log of the sum of exp(logits).
double softmax(std::span<double> x) {
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const double logit : x) largest = std::max(largest, logit);
  for (double& logit : x) sum += logit = std::exp(logit - largest);
  for (double& weight : x) weight /= sum;
  return largest + std::log(sum);
}

}  // namespace

RowAttention attend(std::span<const double> q, int64_t group_size, int64_t v_head_dim,
                    const std::vector<int64_t>& indices, KeyValueSource& source,
                    std::optional<double> given_scale) {
  std::vector<KeyValue> pairs;
  for (const int64_t i : indices) pairs.push_back(source.load(i));
  const auto n = static_cast<int64_t>(pairs.size());
  RowAttention row{Tensor<double>({group_size, v_head_dim}), Tensor<double>({group_size, n}),
                   std::vector<double>(static_cast<size_t>(group_size),
                                       -std::numeric_limits<double>::infinity())};
  if (n == 0) return row;
  const size_t dk = q.size() / static_cast<size_t>(group_size);
  const double scale = scale_or_default(given_scale, dk);
  for (size_t g = 0; g < static_cast<size_t>(group_size); ++g) {
    const std::span<double> p = row.p.row(g), o = row.o.row(g);
    for (size_t i = 0; i < pairs.size(); ++i) p[i] = scale * dot(q.subspan(g * dk, dk), pairs[i].k);
    row.lse[g] = softmax(p);
    for (size_t i = 0; i < pairs.size(); ++i)
      for (size_t e = 0; e < o.size(); ++e) o[e] += p[i] * pairs[i].v[e];
  }
  return row;
}

Attention attention(const std::string& op, const Tensor<double>& q, const Tensor<double>& k,
                    const Tensor<double>& v, const AttendedKeys& attended,
                    std::optional<double> scale, bool keep_p) {
  check_shapes(op, q, k, v);
  const int64_t B = q.size(0), S = q.size(1), Hq = q.size(2), N = k.size(1), Hkv = k.size(2);
  const int64_t G = Hq / Hkv, dv = v.size(3);
  Attention out{
      Tensor<double>({B, S, Hq, dv}), Tensor<double>({B, S, Hq}), {}, Tensor<int64_t>({B, S, Hkv})};
  if (keep_p) out.p = Tensor<double>({B, S, Hq, N});
  for (int64_t b = 0; b < B; ++b)
    for (int64_t t = 0; t < S; ++t)
      for (int64_t j = 0; j < Hkv; ++j) {
        const std::vector<int64_t> indices = attended(b, t, j);
        KeyValueSource source = rows_of(k, v, b, j);
        const std::span<const double> group = q.row(b, t).subspan(
            static_cast<size_t>(j * G * q.size(3)), static_cast<size_t>(G * q.size(3)));
        const RowAttention row = attend(group, G, dv, indices, source, scale);
        out.reads(b, t, j) = source.reads();
        for (int64_t g = 0; g < G; ++g) {
          std::ranges::copy(row.o.row(g), out.o.row(b, t, j * G + g).begin());
          out.lse(b, t, j * G + g) = row.lse[static_cast<size_t>(g)];
          for (size_t i = 0; keep_p && i < indices.size(); ++i)
            out.p(b, t, j * G + g, indices[i]) = row.p(g, i);
        }
      }
  return out;
}

AttentionGradients attention_backward(const std::string& op, const Tensor<double>& q,
                                      const Tensor<double>& k, const Tensor<double>& v,
                                      const AttendedKeys& attended, const Tensor<double>& d_o,
                                      std::optional<double> given_scale) {
  check_shapes(op, q, k, v);
  const int64_t Hq = q.size(2), Hkv = k.size(2), G = Hq / Hkv, dv = v.size(3);
  require_shape(op, "d_o", d_o, {q.size(0), q.size(1), Hq, dv});
  const double scale = scale_or_default(given_scale, static_cast<size_t>(q.size(3)));
  AttentionGradients d{Tensor<double>(q.shape()), Tensor<double>(k.shape()),
                       Tensor<double>(v.shape())};
  for (int64_t b = 0; b < q.size(0); ++b)
    for (int64_t t = 0; t < q.size(1); ++t)
      for (int64_t h = 0; h < Hq; ++h) {
        const int64_t j = h / G;
        const std::vector<int64_t> indices = attended(b, t, j);
        KeyValueSource source = rows_of(k, v, b, j);
        const RowAttention row = attend(q.row(b, t, h), 1, dv, indices, source, scale);
        // o = sum of p v, p = softmax(s): dv = p do; dp = v.do; ds = p (dp - do.o).
        const std::span<const double> out_gradient = d_o.row(b, t, h);
        const double mean_dp = dot(out_gradient, row.o.row(0));
        for (size_t i = 0; i < indices.size(); ++i) {
          const double p = row.p(0, i);
          const double ds = scale * p * (dot(v.row(b, indices[i], j), out_gradient) - mean_dp);
          for (int64_t e = 0; e < dv; ++e) d.v(b, indices[i], j, e) += p * d_o(b, t, h, e);
          for (int64_t e = 0; e < q.size(3); ++e) {
            d.q(b, t, h, e) += ds * k(b, indices[i], j, e);
            d.k(b, indices[i], j, e) += ds * q(b, t, h, e);
          }
        }
      }
  return d;
}

}  // namespace nsa::reference

// A problem of the backward pass of interval attention for its test on the CPU, and its results by
// loops in fp64.
#pragma once
#include <cmath>
#include <string>

#include "nsa/kernels/interval/interval_backward.h"
#include "nsa/kernels/tests/emulator/numbers.h"

namespace nsa::kernels::testing {

struct Sizes {
  const char* name;
  int batch, queries, keys, kv_heads, group, dk, dv;
  int first_position;
  IntervalRule rule;
  bool half = false;
  bool d_lse = false;
  int gap = 0;                // elements between rows
  int chunk_tokens = 0;       // 0: what the launcher chooses
  bool given_rows = false;    // lse and delta come with the problem
  bool partial_sums = false;  // the launcher's own plan has some
  float qk_scale = 1.f, v_scale = 1.f, d_out_scale = 1.f;
  int first_query = 0;  // queries before it attend nothing
};
/// Elements that are not finite: in k and v of a token, in q and d_out of a token; -1: none.
struct Poison {
  int k = -1, v = -1, q = -1, d_out = -1;
  float value = NAN;
};

inline IntervalRule window(int w) { return {1, 1, w}; }
inline IntervalRule compressed(int extent, int stride) {
  return {extent, stride, IntervalRule::kEverything};
}

/// Half-open, from the rule's words: key i is attended at t iff i * stride + extent - 1 <= t and
/// i > t - window.
inline void keys_of(const Sizes& z, int query, int& begin, int& end) {
  const int position = z.first_position + query;
  begin = end = 0;
  if (query < z.first_query) return;
  bool found = false;
  for (int i = 0; i < z.keys; ++i) {
    if (int64_t(i) * z.rule.stride + z.rule.extent - 1 > position) break;
    if (i <= position - z.rule.window) continue;
    if (!found) begin = i, found = true;
    end = i + 1;
  }
}

struct Problem {
  explicit Problem(const Sizes& sizes, const Poison& bad = {})
      : z(sizes),
        heads(z.kv_heads * z.group),
        q(z.batch, z.queries, heads, z.dk, z.half, z.gap),
        k(z.batch, z.keys, z.kv_heads, z.dk, z.half, z.gap),
        v(z.batch, z.keys, z.kv_heads, z.dv, z.half, 2 * z.gap),
        d_out(z.batch, z.queries, heads, z.dv, z.half, z.gap),
        out(z.batch, z.queries, heads, z.dv, z.half),
        lse(rows()),
        d_lse(rows()),
        delta(rows()),
        exact_lse(rows()) {
    q.draw(1, z.qk_scale), k.draw(2, z.qk_scale), v.draw(3, z.v_scale),
        d_out.draw(4, z.d_out_scale);
    for (size_t i = 0; i < d_lse.size(); ++i)
      d_lse[i] = z.d_lse ? float((i * 7919) % 101) / 101.f - 0.5f : 0.f;
    for (int c = 0; c < 3; ++c) {  // of the first sequence and head
      if (bad.k >= 0) k.set(0, bad.k, 0, 5 * c, bad.value);
      if (bad.v >= 0) v.set(0, bad.v, 0, 7 * c, bad.value);
      if (bad.q >= 0) q.set(0, bad.q, 0, 3 * c, bad.value);
      if (bad.d_out >= 0) d_out.set(0, bad.d_out, 0, 9 * c, bad.value);
    }
    forward();
  }
  size_t rows() const { return size_t(z.batch) * z.queries * z.kv_heads * z.group; }
  size_t row(int b, int t, int h) const { return (size_t(b) * z.queries + t) * heads + h; }
  size_t key(int b, int i, int kv_head) const {
    return (size_t(b) * z.keys + i) * z.kv_heads + kv_head;
  }
  double scale() const { return 1. / std::sqrt(double(z.dk)); }

  template <typename Do>
  void for_each_row(const Do& apply) const {
    for (int b = 0; b < z.batch; ++b)
      for (int t = 0; t < z.queries; ++t) {
        int begin, end;
        keys_of(z, t, begin, end);
        for (int h = 0; h < heads; ++h) apply(b, t, h, begin, end);
      }
  }
  static double dot(const emulator::Numbers& x, int64_t i, const emulator::Numbers& y, int64_t j) {
    double sum = 0;
    for (int c = 0; c < x.dim; ++c)
      sum += emulator::value_of(x.bits[i + c], x.half) * emulator::value_of(y.bits[j + c], y.half);
    return sum;
  }
  double logit(int b, int t, int h, int i) const {
    return dot(q, q.place(b, t, h, 0), k, k.place(b, i, h / z.group, 0)) * scale();
  }

  /// out and lse as a forward pass leaves them, and delta.
  void forward() {
    for_each_row([&](int b, int t, int h, int begin, int end) {
      std::vector<double> weights, sums(z.dv, 0.);
      double largest = -INFINITY, sum = 0, weighted = 0;
      for (int i = begin; i < end; ++i) {
        weights.push_back(logit(b, t, h, i));
        largest = std::fmax(largest, weights.back());
      }
      for (double& w : weights) sum += w = std::exp(w - largest);
      for (int i = begin; i < end; ++i)
        for (int c = 0; c < z.dv; ++c) sums[c] += weights[i - begin] * v.at(b, i, h / z.group, c);
      for (int c = 0; c < z.dv; ++c) {
        const double value = end > begin ? sums[c] / sum : 0.;
        out.set(b, t, h, c, float(value));
        weighted += value * d_out.at(b, t, h, c);
      }
      const size_t at = row(b, t, h);
      exact_lse[at] = end > begin ? largest + std::log(sum) : -INFINITY;
      lse[at] = float(exact_lse[at]);
      delta[at] = weighted - d_lse[at];
    });
  }

  Sizes z;
  int heads;
  emulator::Numbers q, k, v, d_out, out;
  std::vector<float> lse, d_lse;
  std::vector<double> delta, exact_lse;
};

struct Gradients {
  std::vector<double> d_q, d_k, d_v;
};
inline Gradients gradients_of(const Problem& p) {
  const Sizes& z = p.z;
  const size_t keys = size_t(z.batch) * z.keys * z.kv_heads;
  Gradients g{std::vector<double>(p.rows() * z.dk), std::vector<double>(keys * z.dk),
              std::vector<double>(keys * z.dv)};
  p.for_each_row([&](int b, int t, int h, int begin, int end) {
    const size_t row = p.row(b, t, h);
    const int kv_head = h / z.group;
    for (int i = begin; i < end; ++i) {
      const double weight = std::exp(p.logit(b, t, h, i) - p.exact_lse[row]),
                   d_weight = Problem::dot(p.d_out, p.d_out.place(b, t, h, 0), p.v,
                                           p.v.place(b, i, kv_head, 0)),
                   ds = weight * (d_weight - p.delta[row]) * p.scale();
      const size_t key = p.key(b, i, kv_head);
      for (int c = 0; c < z.dk; ++c) {
        g.d_q[row * z.dk + c] += ds * p.k.at(b, i, kv_head, c);
        g.d_k[key * z.dk + c] += ds * p.q.at(b, t, h, c);
      }
      for (int c = 0; c < z.dv; ++c) g.d_v[key * z.dv + c] += weight * p.d_out.at(b, t, h, c);
    }
  });
  return g;
}

}  // namespace nsa::kernels::testing

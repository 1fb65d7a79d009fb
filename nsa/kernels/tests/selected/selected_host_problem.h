// A random problem of the selected branch on the host and its gradients by plain fp64 loops, for
// tests of kernels in the emulator.
#pragma once
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "nsa/kernels/selected/selected_backward.h"
#include "nsa/kernels/tests/emulator/numbers.h"

namespace nsa::kernels::emulator {

struct SelectedCase {
  int batch, s, group, kv_heads, dk, dv;
  bool half = false;
  int num_ranges = 3;
  int first_position = 0;
  bool blocks = false;      // chosen blocks of 64 instead of any ranges
  int bad = 0;              // what is NaN, bits: q of a row, d_out of a row, a key, one value
  bool with_d_lse = false;  // and rows apart from each other
  Code code = Code::kSm80;  // of the backward pass
  int dense = 0;            // its queries in whole tiles
  int n() const { return first_position + s; }
  int heads() const { return group * kv_heads; }
  std::string name() const {
    return "B " + std::to_string(batch) + " S " + std::to_string(s) + " G " +
           std::to_string(group) + " Hkv " + std::to_string(kv_heads) + " " + std::to_string(dk) +
           "/" + std::to_string(dv) + (half ? " fp16" : " bf16") +
           (blocks ? " blocks" : " ranges") +
           (first_position > 0 ? " from " + std::to_string(first_position) : "") +
           (bad != 0 ? " bad " + std::to_string(bad) : "") + (with_d_lse ? " d_lse" : "") +
           (dense > 0 ? " dense " + std::to_string(dense) : "");
  }
};

/// Gradients in fp64, in the order of their tensors.
struct SelectedGradients {
  std::vector<double> q, k, v;
};

/// Inputs, and out and lse of the forward pass by fp64 loops.
struct SelectedProblem {
  SelectedCase c;
  Numbers q, k, v, d_out, out;
  std::vector<float> lse, d_lse;
  std::vector<int32_t> ranges;
  double scale;

  explicit SelectedProblem(const SelectedCase& which)
      : c(which),
        q(c.batch, c.s, c.heads(), c.dk, c.half, gap()),
        k(c.batch, c.n(), c.kv_heads, c.dk, c.half, gap()),
        v(c.batch, c.n(), c.kv_heads, c.dv, c.half, gap()),
        d_out(c.batch, c.s, c.heads(), c.dv, c.half, gap()),
        out(c.batch, c.s, c.heads(), c.dv, c.half),
        lse(size_t(c.batch) * c.s * c.heads()),
        d_lse(lse.size()),
        scale(1 / std::sqrt(double(c.dk))) {
    q.draw(1, 1.f), k.draw(2, 1.f), v.draw(3, 1.f), d_out.draw(4, 1.f);
    std::mt19937 random(5);
    for (float& x : d_lse) x = float(random() % 2001) / 1000.f - 1.f;
    c.blocks ? draw_blocks(random) : draw_ranges(random);
    spoil();
    run_forward();
  }
  int gap() const { return c.with_d_lse ? 8 : 0; }

  /// Any order, overlapping, empty, reversed, before the first token and behind the position.
  void draw_ranges(std::mt19937& random) {
    const int span = c.n() + 12;
    for (int64_t i = 0; i < int64_t{c.batch} * c.s * c.kv_heads * c.num_ranges; ++i) {
      int begin = static_cast<int>(random() % span) - 5,
          end = static_cast<int>(random() % span) - 5;
      if (random() % 4 == 0) begin = 0, end = 70;
      if (random() % 8 == 0) end = 0;
      ranges.push_back(begin);
      ranges.push_back(end);
    }
  }
  /// The first block, the two newest ones and others, each its own range; some tokens have none.
  void draw_blocks(std::mt19937& random) {
    for (int row = 0; row < c.batch * c.s * c.kv_heads; ++row) {
      const int position = c.first_position + row / c.kv_heads % c.s, current = position / 64;
      for (int i = 0; i < c.num_ranges; ++i) {
        int block = i == 0  ? 0
                    : i < 3 ? current + 1 - i
                            : static_cast<int>(random() % (current + 1));
        if (block < 0 || row / c.kv_heads % 7 == 3) block = 1 << 20;
        ranges.push_back(std::min(block * 64, position + 1));
        ranges.push_back(std::min(block * 64 + 64, position + 1));
      }
    }
  }
  void spoil() {
    for (int i = 0; i < c.dk; ++i) {
      if (c.bad & 1) q.set(0, c.s / 2, c.heads() > 1, i, NAN);
      if (c.bad & 4) k.set(0, c.n() * 3 / 4, 0, i, NAN);
    }
    for (int i = 0; i < c.dv; ++i)
      if (c.bad & 2) d_out.set(0, c.s / 3, 0, i, NAN);
    if (c.bad & 8) v.set(0, c.n() * 4 / 5, 0, 3, NAN);
  }

  size_t row_of(int b, int t, int head) const { return (size_t(b) * c.s + t) * c.heads() + head; }
  /// Keys that a token attends with the heads of a group, ascending.
  std::vector<int> keys_of(int b, int t, int kv_head) const {
    std::vector<int> keys;
    const int32_t* own =
        ranges.data() + ((size_t(b) * c.s + t) * c.kv_heads + kv_head) * c.num_ranges * 2;
    for (int key = 0; key <= c.first_position + t; ++key) {
      bool attended = false;
      for (int i = 0; i < c.num_ranges; ++i) attended |= key >= own[2 * i] && key < own[2 * i + 1];
      if (attended) keys.push_back(key);
    }
    return keys;
  }
  /// Calls visit(b, t, head, KV head, keys) for every row.
  template <class Visit>
  void for_rows(const Visit& visit) const {
    for (int b = 0; b < c.batch; ++b)
      for (int t = 0; t < c.s; ++t)
        for (int kv = 0; kv < c.kv_heads; ++kv) {
          const std::vector<int> keys = keys_of(b, t, kv);
          for (int g = 0; g < c.group; ++g) visit(b, t, kv * c.group + g, kv, keys);
        }
  }
  size_t key_row_of(int b, int key, int kv_head) const {
    return (size_t(b) * c.n() + key) * c.kv_heads + kv_head;
  }
  // Eight columns at once, as vectors: all dims are multiples of 8.
  static double dot(const double* x, const double* y, int dim) {
    double sums[8] = {};
    for (int i = 0; i < dim; i += 8)
      for (int j = 0; j < 8; ++j) sums[j] += x[i + j] * y[i + j];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
           ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  }
  static void add_scaled(double* __restrict to, double factor, const double* __restrict from,
                         int dim) {
    for (int i = 0; i < dim; i += 8)
      for (int j = 0; j < 8; ++j) to[i + j] += factor * from[i + j];
  }

  void run_forward() {
    const std::vector<double> q_values = q.values(), k_values = k.values(), v_values = v.values();
    for_rows([&](int b, int t, int head, int kv, const std::vector<int>& keys) {
      const size_t row = row_of(b, t, head);
      std::vector<double> o(c.dv);
      double sum = 0;
      for (const int key : keys) {
        const size_t key_row = key_row_of(b, key, kv);
        const double p =
            std::exp(dot(&q_values[row * c.dk], &k_values[key_row * c.dk], c.dk) * scale);
        sum += p;
        add_scaled(o.data(), p, &v_values[key_row * c.dv], c.dv);
      }
      for (int i = 0; i < c.dv; ++i) out.set(b, t, head, i, float(keys.empty() ? 0 : o[i] / sum));
      lse[row] = keys.empty() ? -INFINITY : float(std::log(sum));
    });
  }

  /// Of a row: the sum of d_out * out less d_lse.
  double delta_of(size_t row, const std::vector<double>& d_out_values,
                  const std::vector<double>& out_values) const {
    return dot(&d_out_values[row * c.dv], &out_values[row * c.dv], c.dv) -
           (c.with_d_lse ? d_lse[row] : 0);
  }

  SelectedGradients gradients() const {
    const std::vector<double> q_values = q.values(), k_values = k.values(), v_values = v.values(),
                              d_out_values = d_out.values(), out_values = out.values();
    SelectedGradients d{std::vector<double>(q_values.size()), std::vector<double>(k_values.size()),
                        std::vector<double>(v_values.size())};
    for_rows([&](int b, int t, int head, int kv, const std::vector<int>& keys) {
      const size_t row = row_of(b, t, head);
      const double delta = delta_of(row, d_out_values, out_values);
      const double *const own_q = &q_values[row * c.dk], *const own_d_out =
                                                             &d_out_values[row * c.dv];
      for (const int key : keys) {
        const size_t key_row = key_row_of(b, key, kv);
        const double* const own_k = &k_values[key_row * c.dk];
        const double p = std::exp(dot(own_q, own_k, c.dk) * scale - lse[row]);
        const double d_score =
            scale * p * (dot(own_d_out, &v_values[key_row * c.dv], c.dv) - delta);
        add_scaled(&d.q[row * c.dk], d_score, own_k, c.dk);
        add_scaled(&d.k[key_row * c.dk], d_score, own_q, c.dk);
        add_scaled(&d.v[key_row * c.dv], p, own_d_out, c.dv);
      }
    });
    return d;
  }

  /// What the launcher takes, without d_q, d_k and d_v.
  SelectedBackward launched() const {
    SelectedBackward p;
    p.q = q.strided(), p.k = k.strided(), p.v = v.strided(), p.d_out = d_out.strided();
    p.ranges = ranges.data();
    p.out = out.bits.data(), p.lse = lse.data(), p.d_lse = c.with_d_lse ? d_lse.data() : nullptr;
    p.batch = c.batch, p.num_queries = c.s, p.num_keys = c.n(), p.num_heads = c.heads();
    p.num_kv_heads = c.kv_heads, p.num_ranges = c.num_ranges;
    p.qk_head_dim = c.dk, p.v_head_dim = c.dv, p.first_position = c.first_position;
    p.max_tiles_of_row = (c.n() + 63) / 64;
    p.block_size = c.blocks ? 64 : 0;
    p.code = c.code, p.dense = c.dense;
    p.scale = static_cast<float>(scale);
    p.element = c.half ? Element::kHalf : Element::kBFloat16;
    return p;
  }
};

/// Largest error over the largest value; infinite where exactly one is not finite.
inline double distance(const std::vector<uint16_t>& have, const std::vector<double>& want,
                       bool half) {
  double error = 0, largest = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double h = value_of(have[i], half), w = want[i];
    if (std::isfinite(w)) largest = std::fmax(largest, std::fabs(w));
    if (h == w || (std::isnan(w) && std::isnan(h))) continue;
    const double difference = std::fabs(h - w);
    error = std::isfinite(difference) ? std::fmax(error, difference) : INFINITY;
  }
  return std::isinf(error) || largest < 1e-12 ? error : error / largest;
}

}  // namespace nsa::kernels::emulator

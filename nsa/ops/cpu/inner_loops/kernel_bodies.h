#pragma once
// The inner loops in terms of vector.h. Included once by the file of each instruction set.
#include "nsa/ops/cpu/inner_loops/kernel_table.h"
#include "nsa/ops/cpu/inner_loops/vector.h"

namespace nsa::cpu {
namespace {

constexpr int kLanes = Vector::kLanes;
// Rows and vectors of sums that a block of a product keeps in registers.
constexpr int kBlockRows = kLanes == 4 ? 2 : 6;
constexpr int kBlockVectors = kLanes == 8 ? 2 : 4;
constexpr float kMinusInfinity = -__builtin_inff();

// Products that are summed before they join what c holds: shorter chains round less.
constexpr int64_t kChain = 32;

template <int kRows, int kVectors>
void multiply_block(const MatrixProduct& g, const float* a, const float* b, float* c) {
  for (int64_t begin = 0; begin < g.k; begin += kChain) {
    const int64_t end = begin + kChain < g.k ? begin + kChain : g.k;
    Sums sums[kRows][kVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) sums[i][j] = sums_of(broadcast(0.0F));
    for (int64_t p = begin; p < end; ++p, a += g.a_column, b += g.b_row) {
      Vector right[kVectors];
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) right[j] = load(b + j * kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        const Vector left = broadcast(a[i * g.a_row]);
#pragma GCC unroll 8
        for (int j = 0; j < kVectors; ++j) sums[i][j] = multiply_add(left, right[j], sums[i][j]);
      }
    }
    const bool joins = g.accumulate || begin > 0;
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) {
        float* place = c + i * g.c_row + j * kLanes;
        const Vector sum = rounded(sums[i][j]);
        store(place, joins ? add(load(place), sum) : sum);
      }
  }
}

template <int kRows, int kVectors>
void multiply_last_rows(const MatrixProduct& g, int64_t rows, const float* a, const float* b,
                        float* c) {
  if constexpr (kRows > 0) {
    if (rows == kRows) return multiply_block<kRows, kVectors>(g, a, b, c);
    multiply_last_rows<kRows - 1, kVectors>(g, rows, a, b, c);
  }
}

template <int kVectors>
void multiply_columns(const MatrixProduct& g, int64_t column) {
  const float* b = g.b + column;
  int64_t row = 0;
  for (; row + kBlockRows <= g.m; row += kBlockRows)
    multiply_block<kBlockRows, kVectors>(g, g.a + row * g.a_row, b, g.c + row * g.c_row + column);
  multiply_last_rows<kBlockRows - 1, kVectors>(g, g.m - row, g.a + row * g.a_row, b,
                                               g.c + row * g.c_row + column);
}

template <int kVectors>
void multiply_last_columns(const MatrixProduct& g, int64_t column) {
  if constexpr (kVectors > 0) {
    if (g.n - column == kVectors * kLanes) return multiply_columns<kVectors>(g, column);
    multiply_last_columns<kVectors - 1>(g, column);
  }
}

void multiply_matrices(const MatrixProduct& g) {
  int64_t column = 0;
  for (; column + kBlockVectors * kLanes <= g.n; column += kBlockVectors * kLanes)
    multiply_columns<kBlockVectors>(g, column);
  multiply_last_columns<kBlockVectors - 1>(g, column);
}

constexpr int kPanelVectors = static_cast<int>(kPanelKeys) / kLanes;

/// Calls step(i, state, keys) for every row i of `rows`.
template <class Step>
void for_rows(const PanelRows& rows, const Step& step) {
  for (int64_t q = 0, i = 0; q < rows.count; ++q)
    for (int64_t head = 0; head < rows.group; ++head, ++i)
      step(i, rows.queries[q] * rows.group + head, rows.keys[q]);
}

void running_softmax(const RunningSoftmax& s) {
  const Vector scale = broadcast(s.scale), none = broadcast(kMinusInfinity);
  for_rows(s.rows, [&](int64_t i, int64_t state, uint64_t keys) {
    float* row = s.logits + i * kPanelKeys;
    Vector x[kPanelVectors], peaks = none;
#pragma GCC unroll 16
    for (int j = 0; j < kPanelVectors; ++j) {
      x[j] = multiply(load(row + j * kLanes), scale);
      if (keys != kAllKeys) x[j] = select(mask_of(keys >> (j * kLanes)), x[j], none);
      peaks = larger(x[j], peaks);
    }
    const float before = s.peak[state], found = largest_lane(peaks);
    const float peak = found > before ? found : before;
    // While all logits are -inf any finite number serves: their weights are 0.
    const float offset = peak == kMinusInfinity ? 0.0F : peak;
    const Vector offsets = broadcast(offset);
    Vector sums = broadcast(0.0F);
#pragma GCC unroll 16
    for (int j = 0; j < kPanelVectors; ++j) {
      const Vector weight = exp_of(subtract(x[j], offsets));
      store(row + j * kLanes, weight);
      sums = add(sums, weight);
    }
    float decay = 1.0F;
    if (peak != before) {
      float lanes[kLanes];
      store(lanes, exp_of(broadcast(before - offset)));
      decay = lanes[0];
    }
    s.peak[state] = peak;
    s.sum[state] = s.sum[state] * decay + sum_of_lanes(sums);
    s.decay[i] = decay;
  });
}

void update_rows(const RowUpdate& u) {
  for_rows(u.rows, [&](int64_t i, int64_t state, uint64_t) {
    const Vector decay = broadcast(u.decay == nullptr ? 1.0F : u.decay[i]);
    float* out = u.out + state * u.width;
    const float* part = u.part + i * u.width;
    for (int64_t e = 0; e < u.width; e += kLanes)
      store(out + e, multiply_add(load(out + e), decay, load(part + e)));
  });
}

void probabilities(const Probabilities& g) {
  const Vector scale = broadcast(g.scale), zero = broadcast(0.0F);
  for_rows(g.rows, [&](int64_t i, int64_t state, uint64_t keys) {
    float* logits = g.logits + i * kPanelKeys;
    const float* d = g.d + i * kPanelKeys;
    const Vector peak = broadcast(g.softmax[state].peak);
    const Vector inverse = broadcast(g.softmax[state].inverse);
    Vector sums = zero;
#pragma GCC unroll 16
    for (int j = 0; j < kPanelVectors; ++j) {
      const Vector x = multiply(load(logits + j * kLanes), scale);
      Vector p = multiply(exp_of(subtract(x, peak)), inverse);
      Vector product = multiply(p, load(d + j * kLanes));
      if (keys != kAllKeys) {
        const Mask mask = mask_of(keys >> (j * kLanes));
        p = select(mask, p, zero);
        product = select(mask, product, zero);
      }
      store(logits + j * kLanes, p);
      sums = add(sums, product);
    }
    g.delta[state] += sum_of_lanes(sums);
  });
}

void logit_gradients(const LogitGradients& g) {
  const Vector scale = broadcast(g.scale), zero = broadcast(0.0F);
  for_rows(g.rows, [&](int64_t i, int64_t state, uint64_t keys) {
    const float* p = g.p + i * kPanelKeys;
    float* d = g.d + i * kPanelKeys;
    const Vector delta = broadcast(g.delta[state]);
#pragma GCC unroll 16
    for (int j = 0; j < kPanelVectors; ++j) {
      const Vector x = multiply(load(p + j * kLanes), subtract(load(d + j * kLanes), delta));
      Vector gradient = multiply(x, scale);
      if (keys != kAllKeys) gradient = select(mask_of(keys >> (j * kLanes)), gradient, zero);
      store(d + j * kLanes, gradient);
    }
  });
}

SoftmaxSums whole_softmax(const WholeSoftmax& s) {
  const Vector scale = broadcast(s.scale), none = broadcast(kMinusInfinity);
  const int64_t end = (s.count + kLanes - 1) / kLanes * kLanes;
  Vector peaks = none;
  for (int64_t i = 0; i < end; i += kLanes) {
    Vector x = multiply(load(s.logits + i), scale);
    if (s.count - i < kLanes) x = select(mask_of((uint64_t{1} << (s.count - i)) - 1), x, none);
    store(s.logits + i, x);
    peaks = larger(x, peaks);
  }
  const float peak = largest_lane(peaks);
  const Vector offsets = broadcast(peak == kMinusInfinity ? 0.0F : peak);
  Vector sums = broadcast(0.0F);
  for (int64_t i = 0; i < end; i += kLanes) {
    const Vector weight = exp_of(subtract(load(s.logits + i), offsets));
    store(s.logits + i, weight);
    sums = add(sums, weight);
  }
  for (int64_t i = end; i < s.width; i += kLanes) store(s.logits + i, broadcast(0.0F));
  return {peak, sum_of_lanes(sums)};
}

void stride_scores(const StrideScores& s) {
  float* probs = s.probs + s.reach - 1;
  int64_t i = 0;
  for (; i < s.blocks; i += kLanes) {  // rows of weights are 0 behind the last block
    Vector sum = multiply(load(s.weights + i), broadcast(s.inverse[0]));
    for (int64_t head = 1; head < s.group; ++head)
      sum = add(sum, multiply(load(s.weights + head * s.row + i), broadcast(s.inverse[head])));
    if (s.blocks - i < kLanes)  // a head that is NaN has no part in what nobody sees
      sum = select(mask_of((uint64_t{1} << (s.blocks - i)) - 1), sum, broadcast(0.0F));
    store(probs + i, sum);
  }
  for (; i < s.width; i += kLanes) store(probs + i, broadcast(0.0F));
  for (int64_t x = 0; x < s.width; x += kLanes) {
    Vector sum = load(s.probs + x);
    for (int64_t back = 1; back < s.reach; ++back) sum = add(sum, load(s.probs + x + back));
    store(s.strides + x, sum);
  }
}

constexpr KernelTable kTable{multiply_matrices, running_softmax, update_rows,  probabilities,
                             logit_gradients,   whole_softmax,   stride_scores};

}  // namespace
}  // namespace nsa::cpu

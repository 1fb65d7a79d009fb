// Interval attention in the emulator: problems, fp64 loops, and what must hold of every launch.
#pragma once
#include <gtest/gtest.h>

#include <functional>

#include "nsa/kernels/tests/emulator/numbers.h"
#include "nsa/kernels/tests/emulator/order.h"
#include "nsa/kernels/tests/interval/interval_host_judge.h"

namespace nsa::kernels::testing {

using emulator::Numbers, emulator::set_order;
using Launch = std::function<cudaError_t(const IntervalAttention&)>;

struct Problem {
  explicit Problem(const Sizes& z, int gap = 8)
      : z(z),
        q(z.batch, z.queries, z.kv_heads * z.group, z.dk, z.half, gap),
        k(z.batch, z.keys, z.kv_heads, z.dk, z.half, gap),
        v(z.batch, z.keys, z.kv_heads, z.dv, z.half, gap),
        tokens(int64_t{z.batch} * z.queries * z.kv_heads) {
    q.draw(1, 1.5f), k.draw(2, 1.f), v.draw(3, 1.f);
    if (z.data == Data::kEqual || z.data == Data::kTwoLevels) k.fill(0.f);
    if (z.data == Data::kTwoLevels)
      for (int b = 0; b < z.batch; ++b)
        for (int t = 0; t < z.keys; ++t)
          for (int h = 0; h < z.kv_heads && t / 4 % 2 == 1; ++h)
            for (int c = 0; c < z.dk; ++c) k.set(b, t, h, c, .25f);
    if (z.data != Data::kRising && z.data != Data::kComb) return;
    const bool comb = z.data == Data::kComb;
    q.for_each([&](uint16_t& x) { x = bits_of(float(value(x)) + .4f); });
    for (int b = 0; b < z.batch; ++b)
      for (int t = 0; t < z.keys; ++t)
        for (int h = 0; h < z.kv_heads; ++h)
          for (int c = 0; c < z.dk; ++c)
            k.set(b, t, h, c,
                  float(k.at(b, t, h, c)) + (comb ? .2f : .8f) * float(t) / float(z.keys) +
                      (comb && t % 128 / 4 == 4 ? .5f : 0.f));
  }
  double value(uint16_t x) const { return emulator::value_of(x, z.half); }
  uint16_t bits_of(float x) const { return emulator::bits_of(x, z.half); }

  Results forward(const Launch& launch) const {
    Results r;
    r.out.assign(tokens * z.group * z.dv, 0x7b7b);
    r.lse.assign(tokens * z.group, 0x7b7b7b7b);
    r.ids.assign(tokens * z.choice.n, 0x7b7b7b7b);
    r.ranges.assign(tokens * z.choice.n * 2, 0x7b7b7b7b);
    IntervalAttention p;
    p.q = q.strided(), p.k = k.strided(), p.v = v.strided(), p.out = r.out.data();
    p.lse = reinterpret_cast<float*>(r.lse.data());
    p.batch = z.batch, p.num_queries = z.queries, p.num_keys = z.keys;
    p.num_heads = z.kv_heads * z.group, p.num_kv_heads = z.kv_heads;
    p.qk_head_dim = z.dk, p.v_head_dim = z.dv, p.first_position = z.first_position;
    p.rule = z.rule, p.scale = 1.f / std::sqrt(float(z.dk));
    p.element = z.half ? Element::kHalf : Element::kBFloat16;
    if (z.choice.block > 0)
      p.selection = {r.ids.data(), r.ranges.data(),  z.choice.block,
                     z.choice.n,   z.choice.initial, z.choice.local};
    EXPECT_EQ(launch(p), cudaSuccess);
    return r;
  }

  bool attends(int64_t token, int key) const {
    return words.empty() || (words[token] >> key / 64 & 1) != 0;
  }

  Sizes z;
  Numbers q, k, v;
  int64_t tokens;               // (batch, query, KV head)
  std::vector<uint64_t> words;  // tiles of 64 keys that a token attends; empty: all
  std::vector<char> ragged;     // a token's ranges are no such tiles: its rows are NaN
};

inline std::vector<double> doubles(const Numbers& x) {
  std::vector<double> values(x.bits.size());
  for (size_t i = 0; i < values.size(); ++i) values[i] = emulator::value_of(x.bits[i], x.half);
  return values;
}

/// All tokens by loops in fp64, judged as launches on a GPU are.
inline void judge(const Problem& p, const Results& r) {
  const Sizes& z = p.z;
  const std::vector<double> q = doubles(p.q), k = doubles(p.k), v = doubles(p.v);
  const int blocks =
      z.choice.block > 0 ? (z.first_position + z.queries + z.choice.block - 1) / z.choice.block : 0;
  std::vector<double> out(p.tokens * z.group * z.dv), lse(p.tokens * z.group),
      scores(p.tokens * blocks), weights(z.keys), sums(z.keys);
  for (int64_t token = 0; token < p.tokens; ++token) {
    const int head = int(token % z.kv_heads), query = int(token / z.kv_heads % z.queries),
              b = int(token / z.kv_heads / z.queries);
    int begin, end;
    keys_of(z.rule, z.first_position + query, z.keys, begin, end);
    std::fill(sums.begin(), sums.end(), 0.);
    for (int g = 0; g < z.group; ++g) {
      const int64_t row = token * z.group + g;
      double sum = 0;
      for (int key = begin; key < end; ++key) {
        if (!p.attends(token, key)) continue;
        double dot = 0;
        const double* x = q.data() + p.q.place(b, query, head * z.group + g, 0);
        const double* y = k.data() + p.k.place(b, key, head, 0);
        for (int c = 0; c < z.dk; ++c) dot += x[c] * y[c];
        sum += weights[key] = std::exp(dot / std::sqrt(double(z.dk)));
      }
      for (int key = begin; key < end; ++key) {
        if (!p.attends(token, key)) continue;
        sums[key] += weights[key] / sum;
        const double* y = v.data() + p.v.place(b, key, head, 0);
        for (int c = 0; c < z.dv; ++c) out[row * z.dv + c] += weights[key] / sum * y[c];
      }
      lse[row] = sum == 0 ? -INFINITY : std::log(sum);
      if (p.ragged.empty() || !p.ragged[token]) continue;
      lse[row] = NAN;
      std::fill_n(out.begin() + row * z.dv, z.dv, NAN);
    }
    if (blocks == 0) continue;
    const int strides = z.choice.block / z.rule.stride, overlap = z.rule.extent / z.rule.stride - 1;
    for (int j = 0; j < blocks; ++j)
      for (int i = std::max(0, j * strides - overlap); i < std::min(end, (j + 1) * strides); ++i)
        scores[token * blocks + j] +=
            (std::min(i + overlap + 1, (j + 1) * strides) - std::max(i, j * strides)) * sums[i];
  }
  compare_rows(z, r, out, lse, 1);
  if (blocks > 0) compare_blocks(z, r, scores, blocks, p.tokens, 1);
}

inline bool same_token(const Problem& p, const Results& r, const Results& s, int64_t token) {
  const auto same = [&](const auto& x, const auto& y, int64_t width) {
    return std::equal(x.begin() + token * width, x.begin() + (token + 1) * width,
                      y.begin() + token * width);
  };
  const Sizes& z = p.z;
  return same(r.out, s.out, int64_t{z.group} * z.dv) && same(r.lse, s.lse, z.group) &&
         same(r.ids, s.ids, z.choice.n) && same(r.ranges, s.ranges, 2 * z.choice.n);
}
/// Tokens for which `counts(batch, query)` holds have the same bits.
inline void compare_bits(const Problem& p, const Results& r, const Results& s, const char* what,
                         const std::function<bool(int, int)>& counts) {
  const Sizes& z = p.z;
  int64_t compared = 0, wrong = 0;
  for (int64_t token = 0; token < p.tokens; ++token) {
    if (!counts(int(token / z.kv_heads / z.queries), int(token / z.kv_heads % z.queries))) continue;
    ++compared;
    wrong += !same_token(p, r, s, token);
  }
  report(wrong == 0, what, double(wrong), "of " + std::to_string(compared));
}

/// Against fp64; the same bits in every order; a bad query and bad keys reach only rows that attend
/// them.
inline void run(const Sizes& z, const Launch& launch, int orders = 2, bool poisons = true) {
  title(z);
  const int before = failures;
  Problem p(z);
  set_order(0);
  const Results first = p.forward(launch);
  judge(p, first);
  for (int seed = 1; seed < orders && emulator::kOtherOrders; ++seed) {
    set_order(seed);
    compare_bits(p, p.forward(launch), first, "same bits in another order",
                 [](int, int) { return true; });
  }
  if (poisons && z.queries >= 3 && z.keys >= 3) {
    const int query = z.queries * 2 / 3, key = z.keys - 1;
    for (int c = 0; c < z.dk; ++c) p.q.set(0, query, z.kv_heads * z.group - 1, c, NAN);
    const Results second = p.forward(launch);
    compare_bits(p, second, first, "rows beside a bad query",
                 [&](int batch, int i) { return batch > 0 || i != query; });
    judge(p, second);
    const auto attended = [&](int i, int from, int to) {
      int begin, end;
      keys_of(z.rule, z.first_position + i, z.keys, begin, end);
      return from < end && to > begin;
    };
    p.v.set(0, key - 1, 0, 1, INFINITY), p.v.set(0, key, 0, z.dv - 1, NAN);
    const Results third = p.forward(launch);
    compare_bits(p, third, second, "rows beside bad values",
                 [&](int batch, int i) { return batch > 0 || !attended(i, key - 1, key + 1); });
    judge(p, third);
    if (!attended(0, key, key + 1)) {
      p.k.set(0, key, 0, 5, NAN);
      const Results fourth = p.forward(launch);
      compare_bits(p, fourth, third, "rows beside a bad key",
                   [&](int batch, int i) { return batch > 0 || !attended(i, key, key + 1); });
      judge(p, fourth);
    }
  }
  EXPECT_EQ(failures, before) << z.name;
}

/// Whether case i of a grid is run: every third where instrumented code takes several times as
/// long.
inline bool taken(int i) {
#ifdef __SANITIZE_ADDRESS__
  return i % 3 == 1;
#else
  return i >= 0;
#endif
}

constexpr int kDims[4][2] = {{64, 64}, {128, 128}, {192, 128}, {256, 256}};

}  // namespace nsa::kernels::testing

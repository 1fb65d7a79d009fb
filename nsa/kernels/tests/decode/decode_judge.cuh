// The fp64 loops on the host that judge a decode step.
#pragma once
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <set>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "nsa/kernels/decode/decode_problem.cuh"

namespace {

/// Everything of a world on the host.
template <typename T>
struct Copy {
  std::vector<T> sel_k, sel_v, cmp_k, cmp_v, win_k, win_v, src_k, src_v, q, q_rotated, k_sel, v_sel,
      k_win, v_win, k_src, v_src, logits, out, o[3];
  std::vector<float> lse[3], gates, scores;
  std::vector<int64_t> sequences, num_tokens, num_blocks, reads, emission_reads;
  std::vector<int32_t> block_idx, ranges;
  explicit Copy(const World<T>& w)
      : sel_k(w.selected.k.host()),
        sel_v(w.selected.v.host()),
        cmp_k(w.compressed.k.host()),
        cmp_v(w.compressed.v.host()),
        win_k(w.win_k.host()),
        win_v(w.win_v.host()),
        src_k(w.src_k.host()),
        src_v(w.src_v.host()),
        q(w.q.host()),
        q_rotated(w.q_rotated.host()),
        k_sel(w.k_sel.host()),
        v_sel(w.v_sel.host()),
        k_win(w.k_win.host()),
        v_win(w.v_win.host()),
        k_src(w.k_src.host()),
        v_src(w.v_src.host()),
        logits(w.logits.host()),
        out(w.out.host()),
        o{w.o_cmp.host(), w.o_sel.host(), w.o_win.host()},
        lse{w.lse_cmp.host(), w.lse_sel.host(), w.lse_win.host()},
        gates(w.gates.host()),
        scores(w.scores.host()),
        sequences(w.sequences.host()),
        num_tokens(w.num_tokens.host()),
        num_blocks(w.num_blocks.host()),
        reads(w.reads.host()),
        emission_reads(w.emission_reads.host()),
        block_idx(w.block_idx.host()),
        ranges(w.ranges.host()) {}
};

/// One (new token, KV head) of a step, judged after it.
template <typename T>
struct Judge {
  const World<T>& w;
  const Copy<T>& x;
  const Case& c;
  const int entry, token, row_of_outputs, kv, t;  // t: position of the new token
  std::string problem;
  static constexpr double kEps = std::is_same<T, __half>::value ? 1.0 / 2048 : 1.0 / 256;

  Judge(const World<T>& world, const Copy<T>& copy, int row, int kv_, int t_)
      : w(world),
        x(copy),
        c(world.c),
        entry(row / c.tokens),
        token(row % c.tokens),
        row_of_outputs(row),
        kv(kv_),
        t(t_) {}

  int sequence() const { return static_cast<int>(x.sequences[entry]); }
  void fail(const std::string& what, double got, double want) {
    if (problem.empty())
      problem = what + " of entry " + std::to_string(entry) + " token " + std::to_string(token) +
                " KV head " + std::to_string(kv) + " t " + std::to_string(t) + ": got " +
                std::to_string(got) + ", want " + std::to_string(want);
  }
  void near(const std::string& what, double got, double want, double bound) {
    if (got == want) return;
    if (!(std::fabs(got - want) <= bound)) fail(what, got, want);
  }
  const T* row(const std::vector<T>& cache, int64_t at, int columns) const {
    return cache.data() + (at * c.kv_heads + kv) * columns;
  }
  static double as_double(T value) { return static_cast<double>(static_cast<float>(value)); }

  void rotated(const char* what, const T* from, const T* to, int columns, bool rotate) {
    for (int i = 0; i < columns; i += 2) {
      const double u = as_double(from[i]), v = as_double(from[i + 1]);
      const double a =
          rotate && c.rope_base != 0 ? t * std::pow(c.rope_base, -double(i) / columns) : 0;
      const double one = u * std::cos(a) - v * std::sin(a), two = u * std::sin(a) + v * std::cos(a);
      const double slack = kEps * 1.0001;
      near(what, as_double(to[i]), one, std::fabs(one) * slack + 1e-6);
      near(what, as_double(to[i + 1]), two, std::fabs(two) * slack + 1e-6);
    }
  }

  int64_t source_row(int position) const {
    return int64_t(sequence()) * c.source_slots() + position % c.source_slots();
  }

  void check_append() {
    const int s = sequence(), slots = c.slots();
    const auto from = [&](const std::vector<T>& tokens, int columns) {
      return tokens.data() + (size_t(row_of_outputs) * c.kv_heads + kv) * columns;
    };
    rotated("k_sel", from(x.k_sel, c.dk), row(x.sel_k, w.selected.row(s, t, c.page), c.dk), c.dk,
            true);
    rotated("v_sel", from(x.v_sel, c.dv), row(x.sel_v, w.selected.row(s, t, c.page), c.dv), c.dv,
            false);
    rotated("k_win", from(x.k_win, c.dk), row(x.win_k, int64_t(s) * slots + t % slots, c.dk), c.dk,
            true);
    rotated("v_win", from(x.v_win, c.dv), row(x.win_v, int64_t(s) * slots + t % slots, c.dv), c.dv,
            false);
    rotated("k_src", from(x.k_src, c.dk), row(x.src_k, source_row(t), c.dk), c.dk, true);
    rotated("v_src", from(x.v_src, c.dv), row(x.src_v, source_row(t), c.dv), c.dv, false);
    for (int g = 0; g < c.group; ++g) {
      const size_t at = (size_t(row_of_outputs) * c.heads() + kv * c.group + g) * c.dk;
      rotated("q", x.q.data() + at, x.q_rotated.data() + at, c.dk, true);
    }
    if (t + 1 < c.l || (t + 1 - c.l) % c.d != 0) return;
    const int64_t block = w.compressed.row(s, (t + 1 - c.l) / c.d, c.page);
    for (int part = 0; part < 2; ++part) {
      const int columns = part == 0 ? c.dk : c.dv;
      for (int i = 0; i < columns; ++i) {
        double sum = 0, size = 0;
        for (int position = t + 1 - c.l; position <= t; ++position) {
          const double value =
              as_double(row(part == 0 ? x.src_k : x.src_v, source_row(position), columns)[i]);
          sum += value, size += std::fabs(value);
        }
        near("compressed block", as_double(row(part == 0 ? x.cmp_k : x.cmp_v, block, columns)[i]),
             sum / c.l, std::fabs(sum) / c.l * kEps * 1.0001 + size / c.l * 1e-6);
      }
    }
  }

  /// Attention of head g over cache rows; returns the probabilities.
  std::vector<double> attend(int branch, int g, const std::vector<int64_t>& rows,
                             const std::vector<T>& keys, const std::vector<T>& values,
                             double (&error)[1], std::vector<double>& output) {
    const size_t head = size_t(row_of_outputs) * c.heads() + kv * c.group + g;
    const T* query = x.q_rotated.data() + head * c.dk;
    std::vector<double> p(rows.size());
    double top = -INFINITY, size = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      const T* key = row(keys, rows[i], c.dk);
      double dot = 0, q2 = 0, k2 = 0;
      for (int j = 0; j < c.dk; ++j) {
        const double a = as_double(query[j]), b = as_double(key[j]);
        dot += a * b, q2 += a * a, k2 += b * b;
      }
      p[i] = dot / std::sqrt(double(c.dk));
      size = std::max(size, std::sqrt(q2 * k2) / std::sqrt(double(c.dk)));
      top = std::max(top, p[i]);
    }
    error[0] = std::max(error[0], std::sqrt(double(c.dk)) * size / (1 << 23));
    double sum = 0;
    for (double& v : p) sum += v = std::exp(v - top);
    for (double& v : p) v /= sum;
    output.assign(c.dv, 0.0);
    std::vector<double> spread(c.dv, 0.0);
    for (size_t i = 0; i < rows.size(); ++i) {
      const T* value = row(values, rows[i], c.dv);
      for (int j = 0; j < c.dv; ++j) {
        output[j] += p[i] * as_double(value[j]);
        spread[j] += p[i] * std::fabs(as_double(value[j]));
      }
    }
    const char* names[] = {"o_cmp", "o_sel", "o_win"};
    for (int j = 0; j < c.dv; ++j)
      near(names[branch], as_double(x.o[branch][head * c.dv + j]), output[j],
           1.0001 * kEps * (std::fabs(output[j]) + spread[j]) + (2 * error[0] + 1e-5) * spread[j]);
    near("lse", x.lse[branch][head], rows.empty() ? -INFINITY : top + std::log(sum),
         2 * error[0] + 1e-5);
    return p;
  }

  void check_ranges(const std::vector<int>& ids) {
    std::vector<std::pair<int, int>> want;
    for (int id : ids) {
      const int begin = id * c.block, end = std::min(begin + c.block, t + 1);
      if (!want.empty() && want.back().second == begin) {
        want.back().second = end;
      } else {
        want.push_back({begin, end});
      }
    }
    want.resize(c.n);
    const size_t at = (size_t(row_of_outputs) * c.kv_heads + kv) * c.n;
    for (int i = 0; i < c.n; ++i) {
      near("start of a range", x.ranges[2 * (at + i)], want[i].first, 0);
      near("end of a range", x.ranges[2 * (at + i) + 1], want[i].second, 0);
    }
  }

  /// The choice that the kernel's own scores ask for, and those scores.
  std::vector<int> check_selection(const std::vector<double>& sums, double tolerance) {
    const size_t pair = size_t(row_of_outputs) * c.kv_heads + kv;
    const int current = t / c.block, m = c.l / c.d, r = c.block / c.d;
    const float* scores = x.scores.data() + pair * c.score_width();
    for (int j = 0; j < c.score_width(); ++j) {
      double want = 0;
      for (int i = j * r - m + 1; i < (j + 1) * r && j <= current; ++i)
        if (i >= 0 && i < static_cast<int>(sums.size()))
          want += sums[i] * (std::min(i + m, (j + 1) * r) - std::max(i, j * r));
      near("score of block " + std::to_string(j), scores[j], want, tolerance);
    }
    for (int j = 2; c.repeated && j < current - 2; ++j)
      if (!w.loud(j) && !w.loud(j - 1)) near("repeated score", scores[j], scores[1], 0);
    std::set<int> want;
    for (int j = 0; j < c.initial && j <= current; ++j) want.insert(j);
    for (int i = 0; i < c.local && current - i >= 0; ++i) want.insert(current - i);
    std::vector<int> free;
    for (int j = 0; j <= current; ++j)
      if (want.count(j) == 0) free.push_back(j);
    std::stable_sort(free.begin(), free.end(), [&](int a, int b) { return scores[a] > scores[b]; });
    for (int j : free)
      if (static_cast<int>(want.size()) < c.n) want.insert(j);
    std::vector<int> ids(want.begin(), want.end());
    for (int i = 0; i < c.n; ++i)
      near("id " + std::to_string(i), x.block_idx[pair * c.n + i],
           i < static_cast<int>(ids.size()) ? ids[i] : -1, 0);
    return ids;
  }

  void check_gated(const std::vector<std::vector<double>> (&outputs)[3]) {
    for (int g = 0; g < c.group; ++g) {
      const int head = kv * c.group + g, gate_head = head / (c.heads() / c.gates());
      const size_t at = (size_t(row_of_outputs) * c.gates() + gate_head) * 3;
      double gate[3], sum = 0;
      for (int i = 0; i < 3; ++i) gate[i] = as_double(x.logits[at + i]);
      for (double v : gate) sum += std::exp(v);
      for (double& v : gate) {
        if (c.gate == GateFunction::kSoftmax) v = std::exp(v) / sum;
        if (c.gate == GateFunction::kSigmoid) v = 1 / (1 + std::exp(-v));
      }
      for (int i = 0; i < 3; ++i) near("gate", x.gates[at + i], gate[i], 1e-6);
      for (int j = 0; j < c.dv; ++j) {
        double want = 0, size = 0;
        for (int i = 0; i < 3; ++i) {
          const size_t place = (size_t(row_of_outputs) * c.heads() + head) * c.dv + j;
          const double branch = as_double(x.o[i][place]);  // itself judged
          want += gate[i] * branch, size += std::fabs(gate[i] * branch);
        }
        near("o", as_double(x.out[(size_t(row_of_outputs) * c.heads() + head) * c.dv + j]), want,
             kEps * 1.0001 * (std::fabs(want) + size) + 1e-5 * size + 1e-7);
      }
    }
    (void)outputs;
  }

  void run() {
    const int s = sequence(), slots = c.slots();
    const int blocks = t + 1 < c.l ? 0 : (t + 1 - c.l) / c.d + 1;
    check_append();
    std::vector<int64_t> cmp, sel, win;
    for (int i = 0; i < blocks; ++i) cmp.push_back(w.compressed.row(s, i, c.page));
    for (int i = std::max(0, t - c.window + 1); i <= t; ++i)
      win.push_back(int64_t(s) * slots + i % slots);
    std::vector<double> sums(blocks, 0.0);
    std::vector<std::vector<double>> outputs[3];
    double dlogit[1] = {0};
    for (int g = 0; g < c.group; ++g) {
      outputs[0].emplace_back();
      const std::vector<double> p = attend(0, g, cmp, x.cmp_k, x.cmp_v, dlogit, outputs[0].back());
      for (int i = 0; i < blocks; ++i) sums[i] += p[i];
    }
    const int terms = c.group * (c.l / c.d);
    const double tolerance = terms * (2 * dlogit[0] + 16.0 / (1 << 23));
    const std::vector<int> ids = check_selection(sums, tolerance);
    check_ranges(ids);
    for (int id : ids)
      for (int i = id * c.block; i < (id + 1) * c.block && i <= t; ++i)
        sel.push_back(w.selected.row(s, i, c.page));
    for (int g = 0; g < c.group; ++g) {
      double unused[1] = {0};
      outputs[1].emplace_back(), outputs[2].emplace_back();
      attend(1, g, sel, x.sel_k, x.sel_v, unused, outputs[1].back());
      attend(2, g, win, x.win_k, x.win_v, unused, outputs[2].back());
    }
    check_gated(outputs);
    const size_t pair = size_t(row_of_outputs) * c.kv_heads + kv;
    near("reads cmp", x.reads[3 * pair], cmp.size(), 0);
    near("reads sel", x.reads[3 * pair + 1], sel.size(), 0);
    near("reads win", x.reads[3 * pair + 2], win.size(), 0);
    const int end = t - token + c.tokens;
    near("num_tokens", x.num_tokens[s], end, 0);
    near("num_blocks", x.num_blocks[s], end < c.l ? 0 : (end - c.l) / c.d + 1, 0);
  }
};

/// Runs the step; every output must come out with the same bits as `again`.
template <typename T>
bool judge_step(World<T>& w, const std::vector<int64_t>& before, int step) {
  const Case& c = w.c;
  const Copy<T> copy(w);
  std::atomic<int> next{0};
  std::vector<std::string> problems(size_t(c.rows()) * c.kv_heads);
  const auto work = [&] {
    for (int i = next++; i < c.rows() * c.kv_heads; i = next++) {
      const int row = i / c.kv_heads;
      const auto first = static_cast<int>(before[copy.sequences[row / c.tokens]]);
      Judge<T> judge(w, copy, row, i % c.kv_heads, first + row % c.tokens);
      judge.run();
      problems[i] = judge.problem;
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i)
    threads.emplace_back(work);
  for (std::thread& one : threads) one.join();
  for (const std::string& problem : problems) {
    if (problem.empty()) continue;
    std::printf("FAILED %s, step %d: %s\n", c.name.c_str(), step, problem.c_str());
    return false;
  }
  return true;
}

}  // namespace

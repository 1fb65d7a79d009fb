// The decode step against plain fp64 loops on the host. No LibTorch.
//   decode_attention_gpu_test                 correctness; ends with 77 where there is no CUDA
//   device decode_attention_gpu_test --time [NAME]   figures of the targets, with and without a
//   graph decode_attention_gpu_test --sweep [NAME]  the same for every cut; --once NAME: one launch
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "nsa/device/decode_attention.h"

namespace {

using nsa::device::DecodeAttention;
using nsa::device::Element;
using nsa::device::GateFunction;
using nsa::device::Strided;

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

template <typename V>
struct Buffer {
  V* data = nullptr;
  size_t count = 0;
  explicit Buffer(size_t n, int byte = 0) : count(n) {
    check(cudaMalloc(&data, (n + 1) * sizeof(V)), "cudaMalloc");
    fill(byte);
  }
  Buffer(const Buffer&) = delete;
  ~Buffer() { cudaFree(data); }
  void fill(int byte) { check(cudaMemset(data, byte, count * sizeof(V)), "memset"); }
  std::vector<V> host() const {
    std::vector<V> copy(count);
    check(cudaMemcpy(copy.data(), data, count * sizeof(V), cudaMemcpyDeviceToHost), "copy");
    return copy;
  }
  void set(const std::vector<V>& from) {
    check(cudaMemcpy(data, from.data(), from.size() * sizeof(V), cudaMemcpyHostToDevice), "copy");
  }
};

struct Case {
  std::string name;
  std::vector<int> lengths;  // tokens before the first step
  int group, kv_heads, dk, dv, capacity;
  int l = 32, d = 16, block = 64, n = 16, initial = 1, local = 2, window = 512, page = 64;
  int steps = 1, gate_heads = 0;  // 0: one a query head
  double rope_base = 1e4;
  float q_scale = 1.f;
  bool equal_keys = false;  // every score is a tie
  bool repeated = false;  // all units alike but a few with larger logits: equal scores, bit by bit
  GateFunction gate = GateFunction::kSoftmax;
  int ranks = 0, warps = 0;
  bool unit_sums = false;
  int batch() const { return static_cast<int>(lengths.size()); }
  int heads() const { return group * kv_heads; }
  int gates() const { return gate_heads > 0 ? gate_heads : heads(); }
  int most_blocks() const { return capacity < l ? 0 : (capacity - l) / d + 1; }
  int slots() const { return std::min(window, capacity); }
  int pages_of(int rows) const { return (rows + page - 1) / page; }
  int score_width() const { return capacity / block + 1; }
};

__device__ float normal(uint64_t i, uint64_t seed) {
  uint64_t x = i * 0x9E3779B97F4A7C15ull + seed * 0xD1B54A32D192ED03ull + 0x632BE59BD9B4E019ull;
  float sum = 0.f;
  for (int k = 0; k < 2; ++k) {
    x ^= x >> 30, x *= 0xBF58476D1CE4E5B9ull, x ^= x >> 27, x *= 0x94D049BB133111EBull,
        x ^= x >> 31;
    for (int j = 0; j < 4; ++j) sum += static_cast<float>((x >> (16 * j)) & 0xffff) / 65536.f - .5f;
  }
  return sum * 1.2247449f;
}
template <typename T>
__global__ void draw(T* to, size_t count, uint64_t seed, float scale) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count;
       i += size_t(gridDim.x) * blockDim.x)
    to[i] = T(normal(i, seed) * scale);
}

/// A paged cache whose pages lie in a random order.
template <typename T>
struct Paged {
  Buffer<T> k, v;
  Buffer<int64_t> table;
  std::vector<int64_t> host_table;
  int pages;
  Paged(const Case& c, int rows, std::mt19937& random)
      : k(size_t(c.batch()) * c.pages_of(rows) * c.page * c.kv_heads * c.dk, 0x7f),
        v(size_t(c.batch()) * c.pages_of(rows) * c.page * c.kv_heads * c.dv, 0x7f),
        table(size_t(c.batch()) * c.pages_of(rows)),
        pages(c.pages_of(rows)) {
    host_table.resize(table.count);
    for (size_t i = 0; i < table.count; ++i) host_table[i] = static_cast<int64_t>(i);
    std::shuffle(host_table.begin(), host_table.end(), random);
    table.set(host_table);
  }
  nsa::device::PagedKv problem(int page) const { return {k.data, v.data, table.data, page, pages}; }
  int64_t row(int sequence, int position, int page) const {
    return host_table[size_t(sequence) * pages + position / page] * page + position % page;
  }
};

/// Caches, inputs and outputs of a case on the device.
template <typename T>
struct World {
  Case c;
  std::mt19937 random{7};
  Paged<T> selected, compressed;
  Buffer<T> win_k, win_v, src_k, src_v;
  Buffer<T> q, k_sel, v_sel, k_win, v_win, k_src, v_src, logits;
  Buffer<int64_t> sequences, num_tokens, num_blocks, emission_reads, reads;
  Buffer<int32_t> arrivals, block_idx, ranges;
  Buffer<T> out, o_cmp, o_sel, o_win, q_rotated;
  Buffer<float> lse_cmp, lse_sel, lse_win, gates, scores;
  Buffer<double> half_turns;
  uint64_t seed = 1;

  explicit World(const Case& given)
      : c(given),
        selected(c, c.capacity, random),
        compressed(c, std::max(1, c.most_blocks()), random),
        win_k(kv(c.slots()) * c.dk, 0x7f),
        win_v(kv(c.slots()) * c.dv, 0x7f),
        src_k(kv(c.l) * c.dk, 0x7f),
        src_v(kv(c.l) * c.dv, 0x7f),
        q(size_t(c.batch()) * c.heads() * c.dk),
        k_sel(kv(1) * c.dk),
        v_sel(kv(1) * c.dv),
        k_win(kv(1) * c.dk),
        v_win(kv(1) * c.dv),
        k_src(kv(1) * c.dk),
        v_src(kv(1) * c.dv),
        logits(size_t(c.batch()) * c.gates() * 3),
        sequences(c.batch()),
        num_tokens(c.batch()),
        num_blocks(c.batch()),
        emission_reads(kv(1)),
        reads(kv(3)),
        arrivals(c.batch()),
        block_idx(kv(c.n)),
        ranges(kv(c.n) * 2),
        out(heads() * c.dv),
        o_cmp(heads() * c.dv),
        o_sel(heads() * c.dv),
        o_win(heads() * c.dv),
        q_rotated(heads() * c.dk),
        lse_cmp(heads()),
        lse_sel(heads()),
        lse_win(heads()),
        gates(size_t(c.batch()) * c.gates() * 3),
        scores(kv(c.score_width())),
        half_turns(c.dk / 2) {
    std::vector<double> turns(c.dk / 2);
    for (int i = 0; i < c.dk / 2; ++i)
      turns[i] = std::pow(c.rope_base > 0 ? c.rope_base : 1.0, -2.0 * i / c.dk) / M_PI;
    half_turns.set(turns);
    std::vector<int64_t> order(c.batch()), tokens(c.batch());
    for (int b = 0; b < c.batch(); ++b) order[b] = b;
    std::shuffle(order.begin(), order.end(), random);
    sequences.set(order);
    fill_caches();
    reset();
  }
  size_t kv(size_t rows) const { return size_t(c.batch()) * rows * c.kv_heads; }
  size_t heads() const { return size_t(c.batch()) * c.heads(); }
  void random_values(T* to, size_t count, float scale = 1.f) {
    if (count > 0) draw<T><<<1024, 256>>>(to, count, seed++, scale);
  }

  void reset() {
    std::vector<int64_t> tokens(c.batch()), blocks(c.batch());
    for (int b = 0; b < c.batch(); ++b) {
      tokens[b] = c.lengths[b];
      blocks[b] = c.lengths[b] < c.l ? 0 : (c.lengths[b] - c.l) / c.d + 1;
    }
    num_tokens.set(tokens);
    num_blocks.set(blocks);
    emission_reads.fill(0);
  }

  /// Random rows of the tokens before the first step; everything else stays NaN. Rows of a page
  /// that were never written, too.
  void fill_caches() {
    const auto paged = [&](Paged<T>& to, auto rows_of, bool equal) {
      std::vector<int> first_row;
      for (int b = 0; b < c.batch(); ++b) {
        const int rows = rows_of(c.lengths[b]);
        for (int at = 0; at < rows; at += c.page) {
          const size_t row = to.row(b, at, c.page) * c.kv_heads;
          const size_t count = size_t(std::min(c.page, rows - at)) * c.kv_heads;
          if (equal) {
            check(cudaMemset(to.k.data + row * c.dk, 0, count * c.dk * sizeof(T)), "memset");
          } else {
            random_values(to.k.data + row * c.dk, count * c.dk);
          }
          random_values(to.v.data + row * c.dv, count * c.dv);
        }
      }
    };
    paged(selected, [](int length) { return length; }, false);
    paged(
        compressed, [&](int length) { return length < c.l ? 0 : (length - c.l) / c.d + 1; },
        c.equal_keys);
    if (c.repeated) repeat_keys();
    const auto ring = [&](Buffer<T>& to, int slots, int columns, int b) {
      const size_t count = size_t(std::min(slots, c.lengths[b])) * c.kv_heads * columns;
      random_values(to.data + size_t(b) * slots * c.kv_heads * columns, count);
    };
    for (int b = 0; b < c.batch(); ++b) {
      ring(win_k, c.slots(), c.dk, b);
      ring(win_v, c.slots(), c.dv, b);
      ring(src_k, c.l, c.dk, b);
      ring(src_v, c.l, c.dv, b);
    }
  }

  /// Compressed keys of the first unit in all others, larger ones in units loud(j).
  bool loud(int unit) const { return unit % 17 == 5; }
  void repeat_keys() {
    std::vector<T> k = compressed.k.host();
    const int each = c.block / c.d, columns = c.kv_heads * c.dk;
    for (int b = 0; b < c.batch(); ++b) {
      for (int i = each; i * c.d + c.l <= c.lengths[b]; ++i) {
        const float scale = loud(i / each) ? float(2 + i % 5) : 1.f;
        const T* from = k.data() + compressed.row(b, i % each, c.page) * columns;
        T* to = k.data() + compressed.row(b, i, c.page) * columns;
        for (int j = 0; j < columns; ++j) to[j] = T(scale * static_cast<float>(from[j]));
      }
    }
    compressed.k.set(k);
  }

  void draw_token() {
    random_values(q.data, q.count, c.q_scale);
    for (Buffer<T>* x : {&k_sel, &v_sel, &k_win, &v_win, &k_src, &v_src, &logits})
      random_values(x->data, x->count);
    if (c.equal_keys) k_src.fill(0);
  }

  DecodeAttention problem(bool details = true) const {
    DecodeAttention p;
    const auto strided = [&](const Buffer<T>& x, int heads, int columns) {
      return Strided{x.data, int64_t(heads) * columns, int64_t(heads) * columns, columns};
    };
    p.q = strided(q, c.heads(), c.dk);
    p.gate_logits = logits.data;
    p.sequences = sequences.data;
    p.num_tokens = num_tokens.data;
    p.selected = selected.problem(c.page);
    p.compressed = compressed.problem(c.page);
    p.window = {win_k.data, win_v.data, c.slots()};
    p.appends = true;
    p.append.k_sel = strided(k_sel, c.kv_heads, c.dk);
    p.append.v_sel = strided(v_sel, c.kv_heads, c.dv);
    p.append.k_win = strided(k_win, c.kv_heads, c.dk);
    p.append.v_win = strided(v_win, c.kv_heads, c.dv);
    p.append.k_cmp_src = strided(k_src, c.kv_heads, c.dk);
    p.append.v_cmp_src = strided(v_src, c.kv_heads, c.dv);
    p.append.source = {src_k.data, src_v.data, c.l};
    p.append.num_blocks = num_blocks.data;
    p.append.emission_reads = emission_reads.data;
    p.append.arrivals = arrivals.data;
    p.append.half_turns = c.rope_base == 0 ? nullptr : half_turns.data;
    p.append.rotate_source = true;
    p.out = out.data;
    if (details) {
      p.branch_out[0] = o_cmp.data, p.branch_out[1] = o_sel.data, p.branch_out[2] = o_win.data;
      p.lse[0] = lse_cmp.data, p.lse[1] = lse_sel.data, p.lse[2] = lse_win.data;
      p.gates = gates.data;
      p.q_rotated = q_rotated.data;
      p.ranges = ranges.data;
      p.scores = scores.data;
    }
    p.block_idx = block_idx.data;
    p.reads = reads.data;
    p.score_width = c.score_width();
    p.batch = c.batch(), p.num_heads = c.heads(), p.num_kv_heads = c.kv_heads;
    p.qk_head_dim = c.dk, p.v_head_dim = c.dv, p.gate_heads = c.gates();
    p.block_size = c.l, p.block_stride = c.d, p.sel_block_size = c.block, p.top_n = c.n;
    p.num_initial = c.initial, p.num_local = c.local, p.window_size = c.window;
    p.max_tokens = c.capacity;
    p.scale = static_cast<float>(1.0 / std::sqrt(double(c.dk)));
    p.gate = c.gate;
    p.element = std::is_same<T, __half>::value ? Element::kHalf : Element::kBFloat16;
    p.ranks = c.ranks, p.warps = c.warps, p.unit_sums = c.unit_sums;
    return p;
  }
};

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

/// One (sequence, KV head) of a step, judged after it.
template <typename T>
struct Judge {
  const World<T>& w;
  const Copy<T>& x;
  const Case& c;
  const int lane, kv, t;  // t: position of the new token
  std::string problem;
  static constexpr double kEps = std::is_same<T, __half>::value ? 1.0 / 2048 : 1.0 / 256;

  Judge(const World<T>& world, const Copy<T>& copy, int lane_, int kv_, int t_)
      : w(world), x(copy), c(world.c), lane(lane_), kv(kv_), t(t_) {}

  int sequence() const { return static_cast<int>(x.sequences[lane]); }
  void fail(const std::string& what, double got, double want) {
    if (problem.empty())
      problem = what + " of lane " + std::to_string(lane) + " KV head " + std::to_string(kv) +
                " t " + std::to_string(t) + ": got " + std::to_string(got) + ", want " +
                std::to_string(want);
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

  void check_append() {
    const int s = sequence(), slots = c.slots();
    const auto from = [&](const std::vector<T>& token, int columns) {
      return token.data() + (size_t(lane) * c.kv_heads + kv) * columns;
    };
    rotated("k_sel", from(x.k_sel, c.dk), row(x.sel_k, w.selected.row(s, t, c.page), c.dk), c.dk,
            true);
    rotated("v_sel", from(x.v_sel, c.dv), row(x.sel_v, w.selected.row(s, t, c.page), c.dv), c.dv,
            false);
    rotated("k_win", from(x.k_win, c.dk), row(x.win_k, int64_t(s) * slots + t % slots, c.dk), c.dk,
            true);
    rotated("v_win", from(x.v_win, c.dv), row(x.win_v, int64_t(s) * slots + t % slots, c.dv), c.dv,
            false);
    rotated("k_src", from(x.k_src, c.dk), row(x.src_k, int64_t(s) * c.l + t % c.l, c.dk), c.dk,
            true);
    rotated("v_src", from(x.v_src, c.dv), row(x.src_v, int64_t(s) * c.l + t % c.l, c.dv), c.dv,
            false);
    for (int g = 0; g < c.group; ++g) {
      const size_t at = (size_t(lane) * c.heads() + kv * c.group + g) * c.dk;
      rotated("q", x.q.data() + at, x.q_rotated.data() + at, c.dk, true);
    }
    if (t + 1 < c.l || (t + 1 - c.l) % c.d != 0) return;
    const int64_t block = w.compressed.row(s, (t + 1 - c.l) / c.d, c.page);
    for (int part = 0; part < 2; ++part) {
      const int columns = part == 0 ? c.dk : c.dv;
      for (int i = 0; i < columns; ++i) {
        double sum = 0, size = 0;
        for (int slot = 0; slot < c.l; ++slot) {
          const double value =
              as_double(row(part == 0 ? x.src_k : x.src_v, int64_t(s) * c.l + slot, columns)[i]);
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
    const size_t head = size_t(lane) * c.heads() + kv * c.group + g;
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
    const size_t at = (size_t(lane) * c.kv_heads + kv) * c.n;
    for (int i = 0; i < c.n; ++i) {
      near("start of a range", x.ranges[2 * (at + i)], want[i].first, 0);
      near("end of a range", x.ranges[2 * (at + i) + 1], want[i].second, 0);
    }
  }

  /// The choice that the kernel's own scores ask for, and those scores.
  std::vector<int> check_selection(const std::vector<double>& sums, double tolerance) {
    const size_t pair = size_t(lane) * c.kv_heads + kv;
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
      const size_t at = (size_t(lane) * c.gates() + gate_head) * 3;
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
          const size_t place = (size_t(lane) * c.heads() + head) * c.dv + j;
          const double branch = as_double(x.o[i][place]);  // itself judged
          want += gate[i] * branch, size += std::fabs(gate[i] * branch);
        }
        near("o", as_double(x.out[(size_t(lane) * c.heads() + head) * c.dv + j]), want,
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
    const double tolerance = c.group * (c.l / c.d) * (2 * dlogit[0] + 16.0 / (1 << 23));
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
    const size_t pair = size_t(lane) * c.kv_heads + kv;
    near("reads cmp", x.reads[3 * pair], cmp.size(), 0);
    near("reads sel", x.reads[3 * pair + 1], sel.size(), 0);
    near("reads win", x.reads[3 * pair + 2], win.size(), 0);
    near("num_tokens", x.num_tokens[s], t + 1, 0);
    near("num_blocks", x.num_blocks[s], blocks, 0);
  }
};

/// Runs the step; every output must come out with the same bits as `again`.
template <typename T>
bool judge_step(World<T>& w, const std::vector<int64_t>& before, int step) {
  const Case& c = w.c;
  const Copy<T> copy(w);
  std::atomic<int> next{0};
  std::vector<std::string> problems(size_t(c.batch()) * c.kv_heads);
  const auto work = [&] {
    for (int i = next++; i < c.batch() * c.kv_heads; i = next++) {
      const int lane = i / c.kv_heads;
      Judge<T> judge(w, copy, lane, i % c.kv_heads, static_cast<int>(before[copy.sequences[lane]]));
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

template <typename V>
bool same(const std::vector<V>& a, const std::vector<V>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(V)) == 0;
}

/// Poisons every selected token that no head of its sequence attends, steps back one token and
/// repeats the step: the outputs must keep their bits.
template <typename T>
bool repeats(World<T>& w, const std::vector<int64_t>& before) {
  const Copy<T> first(w);
  const Case& c = w.c;
  std::vector<T> k = first.sel_k, v = first.sel_v;
  const uint16_t nan_bits = 0x7fff;
  T bad;
  std::memcpy(&bad, &nan_bits, 2);
  for (int lane = 0; lane < c.batch(); ++lane)
    for (int kv = 0; kv < c.kv_heads; ++kv) {
      std::set<int> ids;
      for (int i = 0; i < c.n; ++i)
        ids.insert(first.block_idx[(size_t(lane) * c.kv_heads + kv) * c.n + i]);
      const int s = static_cast<int>(first.sequences[lane]);
      for (int t = 0; t <= before[s]; ++t) {
        if (ids.count(t / c.block) > 0) continue;
        const int64_t row = w.selected.row(s, t, c.page) * c.kv_heads + kv;
        std::fill_n(k.begin() + row * c.dk, c.dk, bad);
        std::fill_n(v.begin() + row * c.dv, c.dv, bad);
      }
    }
  w.selected.k.set(k), w.selected.v.set(v);
  w.num_tokens.set(before);
  check(nsa::device::decode_attention(w.problem(), nullptr), "decode_attention");
  check(cudaDeviceSynchronize(), "repeated step");
  const Copy<T> second(w);
  w.selected.k.set(first.sel_k), w.selected.v.set(first.sel_v);
  const bool equal = same(first.out, second.out) && same(first.o[1], second.o[1]) &&
                     same(first.block_idx, second.block_idx) && same(first.lse[1], second.lse[1]) &&
                     same(first.scores, second.scores) && same(first.reads, second.reads) &&
                     same(first.o[0], second.o[0]) && same(first.o[2], second.o[2]);
  if (!equal) std::printf("FAILED %s: a repeated step with poison differs\n", c.name.c_str());
  return equal;
}

/// The steps of a case, launched one by one or replayed from a graph of one launch.
template <typename T>
bool run_case(const Case& c, bool by_graph) {
  World<T> w(c);
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "stream");
  cudaGraphExec_t graph = nullptr;
  const DecodeAttention p = w.problem();
  if (const char* reason = nsa::device::unsupported_reason(p)) {
    std::printf("FAILED %s: %s\n", c.name.c_str(), reason);
    return false;
  }
  if (by_graph) {
    cudaGraph_t captured;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    check(nsa::device::decode_attention(p, stream), "decode_attention");
    check(cudaStreamEndCapture(stream, &captured), "capture");
    check(cudaGraphInstantiate(&graph, captured, 0), "graph");
    check(cudaGraphDestroy(captured), "graph");
  }
  bool good = true;
  for (int step = 0; step < c.steps && good; ++step) {
    const std::vector<int64_t> before = w.num_tokens.host();
    w.draw_token();
    w.out.fill(0x7f), w.o_cmp.fill(0x7f), w.o_sel.fill(0x7f), w.o_win.fill(0x7f);
    w.lse_cmp.fill(0x7f), w.reads.fill(0x7f), w.block_idx.fill(0x7f), w.scores.fill(0x7f);
    check(cudaDeviceSynchronize(), "token");
    check(by_graph ? cudaGraphLaunch(graph, stream) : nsa::device::decode_attention(p, stream),
          "step");
    check(cudaDeviceSynchronize(), "step");
    good = judge_step(w, before, step);
    if (good && step == c.steps - 1) good = repeats(w, before);
  }
  if (graph != nullptr) check(cudaGraphExecDestroy(graph), "graph");
  check(cudaStreamDestroy(stream), "stream");
  std::printf("%-8s %s %s%s\n", good ? "ok" : "FAILED", c.name.c_str(),
              std::is_same<T, __half>::value ? "fp16" : "bf16", by_graph ? " graph" : "");
  std::fflush(stdout);
  return good;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add = [&](std::string name, std::vector<int> lengths, int group, int kv_heads, int dk,
                       int dv, int capacity, const std::function<void(Case&)>& change = {}) {
    Case c;
    c.name = name + " G " + std::to_string(group) + " Hkv " + std::to_string(kv_heads) + " " +
             std::to_string(dk) + "/" + std::to_string(dv) + " B " + std::to_string(lengths.size());
    c.lengths = lengths, c.group = group, c.kv_heads = kv_heads, c.dk = dk, c.dv = dv;
    c.capacity = capacity;
    if (change) change(c);
    all.push_back(c);
  };
  const int dims[][2] = {{64, 64}, {128, 128}, {192, 128}};
  for (const auto& d : dims) {
    add("empty cache", {0}, 4, 2, d[0], d[1], 200, [](Case& c) { c.steps = 70; });
    add("short", {0, 1, 30, 31, 32, 47, 62, 63, 64, 65}, 16, 1, d[0], d[1], 256,
        [](Case& c) { c.steps = 3; });
    for (int group : {1, 2, 3, 6, 8, 16})
      add("lengths apart", {2047, 100, 510}, group, 2, d[0], d[1], 2300,
          [](Case& c) { c.steps = 3, c.gate = GateFunction::kSigmoid; });
    add("window wraps", {500, 511, 512, 1020}, 4, 2, d[0], d[1], 1100,
        [](Case& c) { c.steps = 20, c.gate_heads = 2; });
    add("ties", {1500, 3000, 800}, 6, 2, d[0], d[1], 3100,
        [](Case& c) { c.equal_keys = true, c.steps = 2; });
    for (int ranks : {1, 2, 4, 8, 16})
      for (int warps : {4, 8})
        for (bool sums : {false, true})
          add("cut " + std::to_string(ranks) + " x " + std::to_string(warps) +
                  (sums ? " sums" : ""),
              {2500, 15, 700}, sums ? 7 : 4, 2, d[0], d[1], 2600,
              [&](Case& c) { c.ranks = ranks, c.warps = warps, c.unit_sums = sums, c.steps = 2; });
    for (int ranks : {1, 4}) {
      for (float scale : {1.f, 8.f})
        add("repeated keys", {4000, 2100}, 6, 2, d[0], d[1], 4200, [&](Case& c) {
          c.repeated = c.unit_sums = true, c.q_scale = scale, c.ranks = ranks, c.warps = 4;
        });
      add("sharp with sums", {3000, 1777}, 16, 1, d[0], d[1], 3100, [&](Case& c) {
        c.q_scale = 6.f, c.steps = 2, c.ranks = ranks, c.warps = 4, c.unit_sums = true;
      });
    }
    add("steps with sums", {500, 1000, 30}, 16, 1, d[0], d[1], 1200,
        [](Case& c) { c.unit_sums = true, c.ranks = 2, c.warps = 4, c.steps = 70; });
    add("ties with sums", {1500, 3000, 800}, 6, 2, d[0], d[1], 3100,
        [](Case& c) { c.equal_keys = c.unit_sums = true, c.ranks = 4, c.warps = 8, c.steps = 2; });
    add("sharp", {3000, 1777}, 8, 2, d[0], d[1], 3100,
        [](Case& c) { c.q_scale = 6.f, c.steps = 2; });
  }
  std::vector<int> many;
  for (int i = 0; i < 33; ++i) many.push_back(i * 61 % 1900);
  add("many", many, 6, 2, 64, 64, 2048, [](Case& c) { c.steps = 2; });
  add("many", many, 16, 4, 192, 128, 2048);
  add("pages of 48", {1000, 1411}, 4, 2, 128, 128, 1500,
      [](Case& c) { c.page = 48, c.steps = 18; });
  add("one page", {1000, 1411}, 4, 2, 128, 128, 1500,
      [](Case& c) { c.page = 1500, c.rope_base = 0; });
  add("other sizes", {300, 77, 911}, 5, 3, 64, 64, 1000, [](Case& c) {
    c.l = 24, c.d = 8, c.block = 40, c.n = 7, c.initial = 2, c.local = 1, c.window = 100,
    c.page = 33;
    c.steps = 30, c.gate = GateFunction::kNone;
  });
  add("blocks as long as strides", {300, 77, 911}, 2, 1, 64, 64, 1000, [](Case& c) {
    c.l = 16, c.d = 16, c.block = 16, c.n = 32, c.initial = 0, c.local = 3, c.window = 3000;
    c.steps = 20;
  });
  add("long", {40000}, 16, 4, 192, 128, 40100);
  return all;
}

/// A sequence longer than promised gets NaN and stays as it is; the others do not notice.
bool refuses_long_sequences() {
  Case c;
  c.lengths = {290, 100}, c.group = 4, c.kv_heads = 2, c.dk = 64, c.dv = 64, c.capacity = 300;
  World<__nv_bfloat16> w(c);
  w.draw_token();
  DecodeAttention p = w.problem();
  p.max_tokens = 200;
  check(nsa::device::decode_attention(p, nullptr), "decode_attention");
  check(cudaDeviceSynchronize(), "step");
  const Copy<__nv_bfloat16> copy(w);
  bool good = copy.num_tokens[0] == 290 && copy.num_tokens[1] == 101;
  for (size_t i = 0; i < copy.out.size(); ++i) {
    const bool is_long = copy.sequences[i / (c.heads() * c.dv)] == 0;
    good = good && std::isnan(static_cast<float>(copy.out[i])) == is_long;
  }
  std::printf("%-8s a sequence longer than promised\n", good ? "ok" : "FAILED");
  return good;
}

int run_cases() {
  int failed = refuses_long_sequences() ? 0 : 1, run = 1;
  for (const Case& c : cases()) {
    const bool by_graph = run % 2 == 1, half = run % 3 == 2;
    failed += (half ? run_case<__half>(c, by_graph) : run_case<__nv_bfloat16>(c, by_graph)) ? 0 : 1;
    ++run;
  }
  std::printf("%d cases, %d failed\n", run, failed);
  return failed == 0 && run > 0 ? 0 : 1;
}

// ---- figures

std::vector<Case> targets() {
  std::vector<Case> all;
  const auto add = [&](const char* name, int batch, int length, int group, int kv_heads, int dk,
                       int dv) {
    Case c;
    c.name = name;
    c.lengths.assign(batch, length);
    c.group = group, c.kv_heads = kv_heads, c.dk = dk, c.dv = dv;
    c.capacity = length + 4096;
    all.push_back(c);
  };
  add("64k_B1", 1, 65536, 16, 4, 192, 128);
  add("64k_B32", 32, 65536, 16, 4, 192, 128);
  add("8k_B256", 256, 8192, 16, 4, 192, 128);
  add("m7c_2k_B1", 1, 2048, 6, 2, 64, 64);
  add("8k_B1", 1, 8192, 16, 4, 192, 128);
  add("8k_B8", 8, 8192, 16, 4, 192, 128);
  add("64k_B4", 4, 65536, 16, 4, 192, 128);
  add("8k_B32", 32, 8192, 16, 4, 192, 128);
  add("m7c_2k_B64", 64, 2048, 6, 2, 64, 64);
  return all;
}

/// Median ms of one launch: alone, as a graph of one, and of a graph of twenty (divided by 20).
template <typename T>
void measure(World<T>& w, const char* label) {
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "stream");
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event"), check(cudaEventCreate(&end), "event");
  DecodeAttention p = w.problem(/*details=*/false);
  p.block_idx = nullptr;
  if (const char* reason = nsa::device::unsupported_reason(p)) {
    std::printf("%-10s %-8s %s\n", w.c.name.c_str(), label, reason);
    return;
  }
  const auto median = [&](const std::function<void()>& work, int times) {
    std::vector<float> ms;
    for (int i = 0; i < times + 3; ++i) {
      check(cudaEventRecord(begin, stream), "event");
      work();
      check(cudaEventRecord(end, stream), "event");
      check(cudaEventSynchronize(end), "step");
      float one = 0;
      check(cudaEventElapsedTime(&one, begin, end), "event");
      if (i >= 3) ms.push_back(one);
    }
    std::nth_element(ms.begin(), ms.begin() + ms.size() / 2, ms.end());
    return ms[ms.size() / 2];
  };
  const auto graph_of = [&](int launches) {
    cudaGraph_t captured;
    cudaGraphExec_t graph;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < launches; ++i) check(nsa::device::decode_attention(p, stream), "step");
    check(cudaStreamEndCapture(stream, &captured), "capture");
    check(cudaGraphInstantiate(&graph, captured, 0), "graph");
    check(cudaGraphDestroy(captured), "graph");
    return graph;
  };
  w.reset();
  const float alone = median([&] { check(nsa::device::decode_attention(p, stream), "step"); }, 40);
  cudaGraphExec_t one = graph_of(1), twenty = graph_of(20);
  const float by_graph = median([&] { check(cudaGraphLaunch(one, stream), "graph"); }, 60);
  const float in_row = median([&] { check(cudaGraphLaunch(twenty, stream), "graph"); }, 20) / 20;
  const std::vector<int64_t> reads = w.reads.host();
  double bytes = 0;
  for (int64_t count : reads) bytes += double(count) * (w.c.dk + w.c.dv) * sizeof(T);
  std::printf("%-10s %-8s launch %.4f  graph of 1 %.4f  of 20 %.4f ms; %.1f MB, %.2f TB/s\n",
              w.c.name.c_str(), label, alone, by_graph, in_row, bytes * 1e-6,
              bytes * 1e-9 / in_row);
  std::fflush(stdout);
  check(cudaGraphExecDestroy(one), "graph"), check(cudaGraphExecDestroy(twenty), "graph");
  check(cudaEventDestroy(begin), "event"), check(cudaEventDestroy(end), "event");
  check(cudaStreamDestroy(stream), "stream");
}

int time_targets(const std::string& mode, const std::string& only) {
  for (const Case& c : targets()) {
    if (!only.empty() && only.find(c.name) == std::string::npos) continue;
    World<__nv_bfloat16> w(c);
    w.draw_token();
    check(cudaDeviceSynchronize(), "caches");
    if (mode == "--once") {
      check(nsa::device::decode_attention(w.problem(false), nullptr), "step");
      check(cudaDeviceSynchronize(), "step");
      continue;
    }
    measure(w, "chosen");
    if (mode != "--sweep") continue;
    for (int ranks = 1; ranks <= 16; ranks *= 2)
      for (int warps : {4, 6, 8}) {
        w.c.ranks = ranks, w.c.warps = warps;
        measure(w, (std::to_string(ranks) + "x" + std::to_string(warps)).c_str());
      }
  }
  return 0;
}

}  // namespace

int main(int count, char** words) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("no CUDA device\n");
    return 77;
  }
  const std::string mode = count > 1 ? words[1] : "", only = count > 2 ? words[2] : "";
  return mode.empty() ? run_cases() : time_targets(mode, only);
}

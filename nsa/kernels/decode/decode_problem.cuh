// A random problem of the decode step on the device, for decode_attention_gpu_test.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "nsa/kernels/common/launch.cuh"
#include "nsa/kernels/decode/decode_attention.h"
#include "nsa/kernels/tests/test_buffer.cuh"

namespace {

using nsa::kernels::DecodeAttention;
using nsa::kernels::Element;
using nsa::kernels::GateFunction;
using nsa::kernels::Strided;

struct Case {
  std::string name;
  std::vector<int> lengths;  // tokens before the first step
  int group, kv_heads, dk, dv, capacity;
  int l = 32, d = 16, block = 64, n = 16, initial = 1, local = 2, window = 512, page = 64;
  int steps = 1, tokens = 1;  // of a sequence in each step
  int gate_heads = 0;         // 0: one a query head
  double rope_base = 1e4;
  float q_scale = 1.f;
  bool longest_first = false;  // of the sequences, by the launch's order
  bool equal_keys = false;     // every score is a tie
  bool repeated = false;  // all units alike but a few with larger logits: equal scores, bit by bit
  GateFunction gate = GateFunction::kSoftmax;
  int ranks = 0, warps = 0;
  bool unit_sums = false;
  int batch() const { return static_cast<int>(lengths.size()); }
  int heads() const { return group * kv_heads; }
  int gates() const { return gate_heads > 0 ? gate_heads : heads(); }
  int most_blocks() const { return capacity < l ? 0 : (capacity - l) / d + 1; }
  int rows() const { return batch() * tokens; }
  int slots() const { return std::min(window + tokens - 1, capacity); }
  int source_slots() const { return l + tokens - 1; }
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
  nsa::kernels::PagedKv problem(int page) const {
    return {k.data, v.data, table.data, page, pages};
  }
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
  Buffer<int32_t> arrivals, block_idx, ranges, launch_order;
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
        src_k(kv(c.source_slots()) * c.dk, 0x7f),
        src_v(kv(c.source_slots()) * c.dv, 0x7f),
        q(heads() * c.dk),
        k_sel(kv(c.tokens) * c.dk),
        v_sel(kv(c.tokens) * c.dv),
        k_win(kv(c.tokens) * c.dk),
        v_win(kv(c.tokens) * c.dv),
        k_src(kv(c.tokens) * c.dk),
        v_src(kv(c.tokens) * c.dv),
        logits(size_t(c.rows()) * c.gates() * 3),
        sequences(c.batch()),
        num_tokens(c.batch()),
        num_blocks(c.batch()),
        emission_reads(kv(1)),
        reads(kv(3 * c.tokens)),
        arrivals(c.batch(), 0),
        block_idx(kv(c.tokens * c.n)),
        ranges(kv(c.tokens * c.n) * 2),
        launch_order(c.batch()),
        out(heads() * c.dv),
        o_cmp(heads() * c.dv),
        o_sel(heads() * c.dv),
        o_win(heads() * c.dv),
        q_rotated(heads() * c.dk),
        lse_cmp(heads()),
        lse_sel(heads()),
        lse_win(heads()),
        gates(size_t(c.rows()) * c.gates() * 3),
        scores(kv(c.tokens * c.score_width())),
        half_turns(c.dk / 2) {
    std::vector<double> frequencies(c.dk / 2);
    for (int i = 0; i < c.dk / 2; ++i)
      frequencies[i] = std::pow(c.rope_base > 0 ? c.rope_base : 1.0, -2.0 * i / c.dk) / M_PI;
    half_turns.set(frequencies);
    std::vector<int64_t> order(c.batch()), tokens(c.batch());
    for (int b = 0; b < c.batch(); ++b) order[b] = b;
    std::shuffle(order.begin(), order.end(), random);
    sequences.set(order);
    std::vector<int32_t> entries(c.batch());
    for (int b = 0; b < c.batch(); ++b) entries[b] = b;
    std::stable_sort(entries.begin(), entries.end(), [&](int32_t a, int32_t b) {
      return c.lengths[order[a]] > c.lengths[order[b]];
    });
    launch_order.set(entries);
    fill_caches();
    reset();
  }
  size_t kv(size_t rows) const { return size_t(c.batch()) * rows * c.kv_heads; }
  size_t heads() const { return size_t(c.rows()) * c.heads(); }
  void random_values(T* to, size_t count, float scale = 1.f) {
    if (count == 0) return;
    const auto blocks = static_cast<unsigned>(std::min<size_t>((count + 255) / 256, 1024));
    check(
        nsa::kernels::portable::launch(draw<T>, blocks, 256, 0, nullptr, to, count, seed++, scale),
        "draw");
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
      ring(src_k, c.source_slots(), c.dk, b);
      ring(src_v, c.source_slots(), c.dv, b);
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
      const int64_t token = int64_t(heads) * columns;
      return Strided{x.data, c.tokens * token, token, columns};
    };
    p.q = strided(q, c.heads(), c.dk);
    p.gate_logits = logits.data;
    p.sequences = sequences.data;
    if (c.longest_first) p.order = launch_order.data;
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
    p.append.source = {src_k.data, src_v.data, c.source_slots()};
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
    p.batch = c.batch(), p.tokens = c.tokens, p.num_heads = c.heads(), p.num_kv_heads = c.kv_heads;
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

}  // namespace

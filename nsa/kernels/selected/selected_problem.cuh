// A random problem of the selected branch on the device, for selected_gpu_test.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "nsa/kernels/selected/rows/row_attention.h"
#include "nsa/kernels/selected/selected_backward.h"
#include "nsa/kernels/tests/selected/selected_judge.cuh"

namespace {

using nsa::kernels::Code;
using nsa::kernels::Element;
using nsa::kernels::RowAttention;
using nsa::kernels::SelectedBackward;
using nsa::kernels::Strided;

struct Case {
  int batch, s, group, kv_heads, dk, dv, num_ranges, first_position = 0;
  int block_size = 0;  // of chosen blocks; 0: any ranges
  bool bad = false;    // values that are not finite at some tokens
  bool with_d_lse = false;
  bool empty = false;  // some rows without ranges
  int n() const { return first_position + s; }
  int heads() const { return group * kv_heads; }
  std::string name() const {
    return "B " + std::to_string(batch) + " S " + std::to_string(s) + " G " +
           std::to_string(group) + " Hkv " + std::to_string(kv_heads) + " " + std::to_string(dk) +
           "/" + std::to_string(dv) +
           (block_size == 0    ? " ranges"
            : block_size == 64 ? " blocks"
                               : " blocks of " + std::to_string(block_size)) +
           (first_position ? " later" : "") + (bad ? " bad" : "") + (with_d_lse ? " d_lse" : "") +
           (empty ? " empty rows" : "");
  }
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
__global__ void draw(T* to, size_t count, uint64_t seed) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count;
       i += size_t(gridDim.x) * blockDim.x)
    to[i] = T(normal(i, seed));
}

/// Token 0 and the two newest blocks are forced, the rest are drawn; sorted, joined where adjacent.
__global__ void draw_blocks(int2* ranges, int rows, int kv_heads, int s, int first_position,
                            int top_n, int block_size, uint64_t seed) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const int position = first_position + row / kv_heads % s, current = position / block_size;
  int ids[32];
  int count = 0;
  const auto has = [&](int id) {
    for (int i = 0; i < count; ++i)
      if (ids[i] == id) return true;
    return false;
  };
  const int wanted = min(top_n, current + 1);
  const int forced[3] = {0, current, max(current - 1, 0)};
  for (int id : forced)
    if (count < wanted && !has(id)) ids[count++] = id;
  uint64_t x = (row + 1) * 0x9E3779B97F4A7C15ull + seed;
  while (count < wanted) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    const int id = current + 1 <= top_n ? count : static_cast<int>((x >> 20) % (current + 1));
    if (current + 1 <= top_n) {
      for (int i = 0; i <= current && count < wanted; ++i)
        if (!has(i)) ids[count++] = i;
    } else if (!has(id)) {
      ids[count++] = id;
    }
  }
  for (int i = 1; i < count; ++i)
    for (int j = i; j > 0 && ids[j - 1] > ids[j]; --j) {
      const int t = ids[j];
      ids[j] = ids[j - 1], ids[j - 1] = t;
    }
  int used = 0;
  for (int i = 0; i < count; ++i) {
    const int begin = ids[i] * block_size, end = min(begin + block_size, position + 1);
    if (used > 0 && ranges[int64_t(row) * top_n + used - 1].y == begin) {
      ranges[int64_t(row) * top_n + used - 1].y = end;
    } else {
      ranges[int64_t(row) * top_n + used++] = make_int2(begin, end);
    }
  }
  for (; used < top_n; ++used) ranges[int64_t(row) * top_n + used] = make_int2(0, 0);
}

/// The first tokens and every third one attend nothing.
__global__ void drop_ranges(int2* ranges, int rows, int kv_heads, int top_n) {
  for (int row = blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += gridDim.x * blockDim.x)
    if (row / kv_heads < 40 || row / kv_heads % 3 == 1)
      for (int i = 0; i < top_n; ++i) ranges[int64_t(row) * top_n + i] = make_int2(0, 0);
}

template <typename T>
struct Problem {
  Case c;
  Buffer<T> q, k, v, d_out, out, d_q, d_k, d_v;
  Buffer<float> lse, d_lse;
  Buffer<int2> ranges;
  SelectedBackward p;

  static int64_t query_rows(const Case& c) { return int64_t{c.batch} * c.s * c.heads(); }
  static int64_t key_rows(const Case& c) { return int64_t{c.batch} * c.n() * c.kv_heads; }

  Problem(const Case& which, int tiles_of_row)
      : c(which),
        q(query_rows(c) * c.dk),
        k(key_rows(c) * c.dk),
        v(key_rows(c) * c.dv),
        d_out(query_rows(c) * c.dv),
        out(query_rows(c) * c.dv),
        d_q(query_rows(c) * c.dk),
        d_k(key_rows(c) * c.dk),
        d_v(key_rows(c) * c.dv),
        lse(query_rows(c)),
        d_lse(query_rows(c)),
        ranges(int64_t{c.batch} * c.s * c.kv_heads * c.num_ranges) {
    uint64_t seed = 1;
    for (Buffer<T>* x : {&q, &k, &v, &d_out}) draw<<<1024, 256>>>(x->data, x->count, seed++);
    draw<<<256, 256>>>(d_lse.data, d_lse.count, seed);
    draw_ranges();
    const auto strided = [](const void* data, int64_t tokens, int64_t heads, int64_t dim) {
      return Strided{data, tokens * heads * dim, heads * dim, dim};
    };
    p.q = strided(q.data, c.s, c.heads(), c.dk);
    p.k = strided(k.data, c.n(), c.kv_heads, c.dk);
    p.v = strided(v.data, c.n(), c.kv_heads, c.dv);
    p.d_out = strided(d_out.data, c.s, c.heads(), c.dv);
    p.ranges = reinterpret_cast<const int32_t*>(ranges.data);
    p.out = out.data, p.lse = lse.data, p.d_lse = c.with_d_lse ? d_lse.data : nullptr;
    p.d_q = d_q.data, p.d_k = d_k.data, p.d_v = d_v.data;
    p.batch = c.batch, p.num_queries = c.s, p.num_keys = c.n(), p.num_heads = c.heads();
    p.num_kv_heads = c.kv_heads, p.num_ranges = c.num_ranges;
    p.qk_head_dim = c.dk, p.v_head_dim = c.dv, p.first_position = c.first_position;
    p.max_tiles_of_row = tiles_of_row;
    p.block_size = c.block_size;
    p.scale = 1.f / std::sqrt(static_cast<float>(c.dk));
    p.element = std::is_same_v<T, __half> ? Element::kHalf : Element::kBFloat16;
  }

  void draw_ranges() {
    const int rows = c.batch * c.s * c.kv_heads;
    if (c.block_size > 0) {
      draw_blocks<<<(rows + 127) / 128, 128>>>(ranges.data, rows, c.kv_heads, c.s, c.first_position,
                                               c.num_ranges, c.block_size, 77);
      if (c.empty) drop_ranges<<<64, 128>>>(ranges.data, rows, c.kv_heads, c.num_ranges);
      return;
    }
    // Any order, overlapping, empty, reversed, before the first token and behind the position.
    std::mt19937 random(5);
    std::vector<int2> all(ranges.count);
    for (int2& range : all) {
      const int span = c.n() + 12;
      range = {static_cast<int>(random() % span) - 5, static_cast<int>(random() % span) - 5};
      if (random() % 4 == 0) range = {0, 70};
      if (random() % 8 == 0) range = {static_cast<int>(random() % span), 0};
    }
    check(cudaMemcpy(ranges.data, all.data(), all.size() * sizeof(int2), cudaMemcpyHostToDevice),
          "ranges");
  }

  Plain<T> plain() const {
    return {q.data,
            k.data,
            v.data,
            d_out.data,
            out.data,
            ranges.data,
            lse.data,
            p.d_lse,
            c.s,
            c.n(),
            c.heads(),
            c.kv_heads,
            c.dk,
            c.dv,
            c.num_ranges,
            c.first_position,
            1.0 / std::sqrt(static_cast<double>(c.dk))};
  }

  RowAttention forward() const {
    RowAttention f;
    f.q = p.q, f.k = p.k, f.v = p.v, f.ranges = p.ranges, f.out = out.data, f.lse = lse.data;
    f.batch = p.batch, f.num_queries = p.num_queries, f.num_keys = p.num_keys;
    f.num_heads = p.num_heads, f.num_kv_heads = p.num_kv_heads, f.num_ranges = p.num_ranges;
    f.qk_head_dim = p.qk_head_dim, f.v_head_dim = p.v_head_dim;
    f.first_position = p.first_position, f.scale = p.scale, f.element = p.element;
    f.block_size = c.block_size;
    return f;
  }

  /// NaN in q and d_out of a row, in k of a key and in one value of v.
  void spoil() {
    const auto set = [&](Buffer<T>& x, int64_t row, int dim, float value) {
      std::vector<T> bad(dim, T(value));
      check(cudaMemcpy(x.data + row * dim, bad.data(), dim * sizeof(T), cudaMemcpyHostToDevice),
            "spoil");
    };
    set(q, int64_t{c.s / 2} * c.heads() + 1, c.dk, NAN);
    set(d_out, int64_t{c.s / 3} * c.heads(), c.dv, NAN);
    set(k, int64_t{c.n() * 3 / 4} * c.kv_heads, c.dk, NAN);
    set(v, int64_t{c.n() * 4 / 5} * c.kv_heads * c.dv + 3, 1, NAN);
  }

  /// Infinity and NaN in single values of v, of both signs, in the first and the last sequence.
  void spoil_values() {
    const auto set = [&](int64_t key, int head, int column, float bad) {
      const T value(bad);
      check(cudaMemcpy(v.data + ((key * c.kv_heads) + head) * c.dv + column, &value, sizeof(T),
                       cudaMemcpyHostToDevice),
            "spoil");
    };
    set(c.n() / 2, 0, c.dv - 1, INFINITY);
    set(int64_t{c.batch} * c.n() - 70, c.kv_heads - 1, 17, -INFINITY);
    set(int64_t{c.batch} * c.n() - 69, c.kv_heads - 1, 16, NAN);
  }

  void run(void* workspace, cudaStream_t stream = nullptr) const {
    check(nsa::kernels::selected_attention_backward(p, workspace, stream), "launch");
  }
};

}  // namespace

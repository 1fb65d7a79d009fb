// Selected attention in the order of keys, both passes, against plain fp64 loops on the same
// device. No LibTorch.
//   selected_gpu_test          correctness; ends with 77 where there is no CUDA device
//   selected_gpu_test --time   figures, each with a check of sampled rows and keys;
//   --once:
//                                       a single pass of each for a profiler; --short: small ones
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "nsa/device/row_attention.h"
#include "nsa/device/selected_backward.h"
#include "nsa/device/selected_forward.h"

namespace {

using nsa::device::Element;
using nsa::device::RowAttention;
using nsa::device::SelectedBackward;
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
  explicit Buffer(size_t n) : count(n) {
    check(cudaMalloc(&data, (n + 1) * sizeof(V)), "cudaMalloc");
  }
  Buffer(const Buffer&) = delete;
  ~Buffer() { cudaFree(data); }
  std::vector<V> host(size_t most = SIZE_MAX) const {
    std::vector<V> copy(std::min(count, most));
    check(cudaMemcpy(copy.data(), data, copy.size() * sizeof(V), cudaMemcpyDeviceToHost), "copy");
    return copy;
  }
  void fill(int byte) { check(cudaMemset(data, byte, count * sizeof(V)), "memset"); }
};

struct Case {
  int batch, s, group, kv_heads, dk, dv, num_ranges, first_position = 0;
  bool blocks = false;  // chosen blocks of 64 instead of any ranges
  bool bad = false;     // values that are not finite at some tokens
  bool with_d_lse = false;
  int n() const { return first_position + s; }
  int heads() const { return group * kv_heads; }
  std::string name() const {
    return "B " + std::to_string(batch) + " S " + std::to_string(s) + " G " +
           std::to_string(group) + " Hkv " + std::to_string(kv_heads) + " " + std::to_string(dk) +
           "/" + std::to_string(dv) + (blocks ? " blocks" : " ranges") +
           (first_position ? " later" : "") + (bad ? " bad" : "") + (with_d_lse ? " d_lse" : "");
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
                            int top_n, uint64_t seed) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const int position = first_position + row / kv_heads % s, current = position / 64;
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
    const int begin = ids[i] * 64, end = min(begin + 64, position + 1);
    if (used > 0 && ranges[int64_t(row) * top_n + used - 1].y == begin) {
      ranges[int64_t(row) * top_n + used - 1].y = end;
    } else {
      ranges[int64_t(row) * top_n + used++] = make_int2(begin, end);
    }
  }
  for (; used < top_n; ++used) ranges[int64_t(row) * top_n + used] = make_int2(0, 0);
}

template <typename T>
struct Plain {
  const T *q, *k, *v, *d_out, *out;
  const int2* ranges;
  const float *lse, *d_lse;
  int s, n, heads, kv_heads, dk, dv, num_ranges, first_position;
  double scale;

  __device__ bool attends(int64_t row, int position, int key) const {
    if (key > position) return false;
    for (int i = 0; i < num_ranges; ++i) {
      const int2 range = ranges[row * num_ranges + i];
      if (key >= range.x && key < range.y) return true;
    }
    return false;
  }
  /// Probability and its gradient of one (query row, key), by a warp.
  __device__ double2 pair(int64_t query, int64_t key_row, double delta) const {
    const int lane = threadIdx.x % 32;
    double dot = 0, d_dot = 0;
    for (int i = lane; i < dk; i += 32)
      dot += double(float(q[query * dk + i])) * double(float(k[key_row * dk + i]));
    for (int i = lane; i < dv; i += 32)
      d_dot += double(float(d_out[query * dv + i])) * double(float(v[key_row * dv + i]));
    for (int step = 16; step > 0; step /= 2) {
      dot += __shfl_xor_sync(~0u, dot, step);
      d_dot += __shfl_xor_sync(~0u, d_dot, step);
    }
    const double p = exp(dot * scale - double(lse[query]));
    return make_double2(p, p * (d_dot - delta));
  }
  __device__ double delta_of(int64_t query) const {
    double delta = 0;
    for (int i = threadIdx.x % 32; i < dv; i += 32)
      delta += double(float(d_out[query * dv + i])) * double(float(out[query * dv + i]));
    for (int step = 16; step > 0; step /= 2) delta += __shfl_xor_sync(~0u, delta, step);
    return d_lse == nullptr ? delta : delta - double(d_lse[query]);
  }
};

/// out and lse of every `stride`-th row; a warp a row.
template <typename T>
__global__ void plain_forward(Plain<T> x, T* out, float* lse, int64_t rows) {
  const int64_t query = int64_t(blockIdx.x) * 4 + threadIdx.x / 32;
  if (query >= rows) return;
  const int lane = threadIdx.x % 32, head = query % x.heads, kv = head / (x.heads / x.kv_heads);
  const int64_t token = query / x.heads, batch = token / x.s;
  const int position = x.first_position + token % x.s;
  double sum = 0, o[8] = {};
  for (int key = 0; key <= position; ++key) {
    if (!x.attends(token * x.kv_heads + kv, position, key)) continue;
    const int64_t key_row = (batch * x.n + key) * x.kv_heads + kv;
    double dot = 0;
    for (int i = lane; i < x.dk; i += 32)
      dot += double(float(x.q[query * x.dk + i])) * double(float(x.k[key_row * x.dk + i]));
    for (int step = 16; step > 0; step /= 2) dot += __shfl_xor_sync(~0u, dot, step);
    const double p = exp(dot * x.scale);
    sum += p;
    for (int i = 0; i < x.dv / 32; ++i)
      o[i] += p * double(float(x.v[key_row * x.dv + i * 32 + lane]));
  }
  for (int i = 0; i < x.dv / 32; ++i)
    out[query * x.dv + i * 32 + lane] = T(float(sum == 0 ? 0 : o[i] / sum));
  if (lane == 0) lse[query] = sum == 0 ? -INFINITY : float(log(sum));
}

/// d_q of rows 0, stride, 2 stride, ...; a warp a row.
template <typename T>
__global__ void plain_queries(Plain<T> x, double* d_q, int64_t rows, int stride) {
  const int64_t at = int64_t(blockIdx.x) * 4 + threadIdx.x / 32, query = at * stride;
  if (query >= rows) return;
  const int lane = threadIdx.x % 32, head = query % x.heads, kv = head / (x.heads / x.kv_heads);
  const int64_t token = query / x.heads, batch = token / x.s;
  const int position = x.first_position + token % x.s;
  const double delta = x.delta_of(query);
  double sum[6] = {};
  for (int key = 0; key <= position; ++key) {
    if (!x.attends(token * x.kv_heads + kv, position, key)) continue;
    const int64_t key_row = (batch * x.n + key) * x.kv_heads + kv;
    const double2 p = x.pair(query, key_row, delta);
    for (int i = 0; i < x.dk / 32; ++i)
      sum[i] += x.scale * p.y * double(float(x.k[key_row * x.dk + i * 32 + lane]));
  }
  for (int i = 0; i < x.dk / 32; ++i) d_q[at * x.dk + i * 32 + lane] = sum[i];
}

/// d_k and d_v of key rows 0, stride, ...; a warp a row of [B, N, Hkv].
template <typename T>
__global__ void plain_keys(Plain<T> x, double* d_k, double* d_v, int64_t rows, int stride) {
  const int64_t at = int64_t(blockIdx.x) * 4 + threadIdx.x / 32, key_row = at * stride;
  if (key_row >= rows) return;
  const int lane = threadIdx.x % 32, kv = key_row % x.kv_heads, group = x.heads / x.kv_heads;
  const int64_t batch = key_row / x.kv_heads / x.n;
  const int key = key_row / x.kv_heads % x.n;
  double dk_sum[6] = {}, dv_sum[4] = {};
  for (int t = max(0, key - x.first_position); t < x.s; ++t) {
    const int64_t token = batch * x.s + t;
    if (!x.attends(token * x.kv_heads + kv, x.first_position + t, key)) continue;
    for (int g = 0; g < group; ++g) {
      const int64_t query = token * x.heads + kv * group + g;
      const double2 p = x.pair(query, key_row, x.delta_of(query));
      for (int i = 0; i < x.dk / 32; ++i)
        dk_sum[i] += x.scale * p.y * double(float(x.q[query * x.dk + i * 32 + lane]));
      for (int i = 0; i < x.dv / 32; ++i)
        dv_sum[i] += p.x * double(float(x.d_out[query * x.dv + i * 32 + lane]));
    }
  }
  for (int i = 0; i < x.dk / 32; ++i) d_k[at * x.dk + i * 32 + lane] = dk_sum[i];
  for (int i = 0; i < x.dv / 32; ++i) d_v[at * x.dv + i * 32 + lane] = dv_sum[i];
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
    p.scale = 1.f / std::sqrt(static_cast<float>(c.dk));
    p.element = std::is_same_v<T, __half> ? Element::kHalf : Element::kBFloat16;
  }

  void draw_ranges() {
    const int rows = c.batch * c.s * c.kv_heads;
    if (c.blocks) {
      draw_blocks<<<(rows + 127) / 128, 128>>>(ranges.data, rows, c.kv_heads, c.s, c.first_position,
                                               c.num_ranges, 77);
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

  void run(void* workspace, cudaStream_t stream = nullptr) const {
    check(nsa::device::selected_attention_backward(p, workspace, stream), "launch");
  }
};

double value(__half x) { return __half2float(x); }
double value(__nv_bfloat16 x) { return __bfloat162float(x); }

/// Largest error of rows 0, stride, ... over the largest value; infinite where exactly one is NaN.
template <typename T>
double distance(const std::vector<T>& have, const std::vector<double>& want, int dim, int stride) {
  double error = 0, most = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double h = value(have[(i / dim * stride) * dim + i % dim]), w = want[i];
    if (std::isnan(w) && std::isnan(h)) continue;
    if (std::isfinite(w)) most = std::max(most, std::abs(w));
    const double difference = std::abs(h - w);
    if (!(difference <= error)) error = std::isfinite(difference) ? difference : INFINITY;
  }
  if (std::isinf(error)) return error;
  return most < 1e-12 ? error : error / most;
}

struct Distances {
  double q, k, v;
  bool within(double bound) const { return q <= bound && k <= bound && v <= bound; }
};

template <typename T>
Distances compare(const Problem<T>& x, int row_stride, int key_stride) {
  const Case& c = x.c;
  const int64_t rows = x.query_rows(c), keys = x.key_rows(c);
  const int64_t q_count = (rows + row_stride - 1) / row_stride,
                k_count = (keys + key_stride - 1) / key_stride;
  Buffer<double> d_q(q_count * c.dk), d_k(k_count * c.dk), d_v(k_count * c.dv);
  plain_queries<<<(q_count + 3) / 4, 128>>>(x.plain(), d_q.data, rows, row_stride);
  plain_keys<<<(k_count + 3) / 4, 128>>>(x.plain(), d_k.data, d_v.data, keys, key_stride);
  check(cudaDeviceSynchronize(), "reference");
  return {distance(x.d_q.host(), d_q.host(), c.dk, row_stride),
          distance(x.d_k.host(), d_k.host(), c.dk, key_stride),
          distance(x.d_v.host(), d_v.host(), c.dv, key_stride)};
}

template <typename V>
bool same_bits(const std::vector<V>& a, const std::vector<V>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(V)) == 0;
}

/// Largest error of out and lse of the order of keys against what stands in x.out and x.lse, and
/// whether two runs give the same bits; of the first 2^25 values.
template <typename T>
bool forward_correct(const Problem<T>& x, int tiles_of_row, double bound) {
  RowAttention f = x.forward();
  Buffer<T> out(x.out.count);
  Buffer<float> lse(x.lse.count);
  f.out = out.data, f.lse = lse.data;
  Buffer<char> workspace(nsa::device::workspace_bytes(f, tiles_of_row));
  constexpr size_t kMost = size_t{1} << 25;
  std::vector<T> first;
  std::vector<float> first_lse;
  bool same = true;
  for (int repeat = 0; repeat < 2; ++repeat) {
    workspace.fill(repeat == 1 ? 0x3f : 0xff);
    out.fill(0xff);
    lse.fill(0xff);
    check(selected_attention_forward(f, tiles_of_row, workspace.data, nullptr), "forward");
    check(cudaDeviceSynchronize(), x.c.name().c_str());
    if (repeat == 0) first = out.host(kMost), first_lse = lse.host(kMost);
    same = same && same_bits(first, out.host(kMost)) && same_bits(first_lse, lse.host(kMost));
  }
  const auto doubles = [](const auto& from) {
    std::vector<double> to;
    for (const auto value : from) to.push_back(static_cast<double>(static_cast<float>(value)));
    return to;
  };
  const std::vector<float> want_lse = x.lse.host(kMost);
  double lse_error = 0;
  for (size_t i = 0; i < want_lse.size(); ++i) {
    if (first_lse[i] == want_lse[i] || (std::isnan(first_lse[i]) && std::isnan(want_lse[i])))
      continue;
    const double difference = std::abs(double(first_lse[i]) - double(want_lse[i]));
    if (!(difference <= lse_error)) lse_error = std::isfinite(difference) ? difference : INFINITY;
  }
  const double error = distance(first, doubles(x.out.host(kMost)), x.c.dv, 1);
  const bool ok = same && error <= bound && lse_error <= 1e-5;
  std::printf("%s forward %.1e lse %.1e%s | ", ok ? "ok  " : "FAIL", error, lse_error,
              same ? "" : " other bits twice");
  return ok;
}

template <typename T>
bool correct(const Case& c) {
  Problem<T> x(c, (c.n() + 63) / 64);
  if (c.bad) x.spoil();
  plain_forward<<<(x.query_rows(c) + 3) / 4, 128>>>(x.plain(), x.out.data, x.lse.data,
                                                    x.query_rows(c));
  Buffer<char> workspace(nsa::device::workspace_bytes(x.p));
  std::vector<T> first[3];
  bool same = true;
  for (int repeat = 0; repeat < 3; ++repeat) {
    workspace.fill(repeat == 1 ? 0x3f : 0xff);
    for (Buffer<T>* y : {&x.d_q, &x.d_k, &x.d_v}) y->fill(0xff);
    x.run(workspace.data);
    check(cudaDeviceSynchronize(), c.name().c_str());
    std::vector<T> have[3] = {x.d_q.host(), x.d_k.host(), x.d_v.host()};
    for (int i = 0; i < 3; ++i) {
      if (repeat == 0) first[i] = have[i];
      same = same && same_bits(first[i], have[i]);
    }
  }
  const Distances d = compare(x, 1, 1);
  const double bound = std::is_same_v<T, __half> ? 2e-3 : 1.5e-2;
  const bool ok =
      (c.group > 16 || forward_correct(x, (c.n() + 63) / 64, bound)) && same && d.within(bound);
  std::printf("%s %-44s %s d_q %.1e d_k %.1e d_v %.1e%s\n", ok ? "ok  " : "FAIL", c.name().c_str(),
              std::is_same_v<T, __half> ? "fp16" : "bf16", d.q, d.k, d.v,
              same ? "" : " other bits twice");
  return ok;
}

bool all_correct() {
  bool ok = true;
  const int dims[3][2] = {{64, 64}, {128, 128}, {192, 128}};
  for (const auto& d : dims)
    for (const int group : {1, 2, 3, 6, 12, 16}) {
      const Case any{2, 171, group, 2, d[0], d[1], 3};
      Case blocks{1, 333, group, 2, d[0], d[1], 4};
      blocks.blocks = true;
      ok &= correct<__nv_bfloat16>(any);
      ok &= correct<__half>(blocks);
    }
  Case later{2, 70, 4, 1, 128, 128, 5, 131};
  later.with_d_lse = true;
  ok &= correct<__nv_bfloat16>(later);
  ok &= correct<__half>(later);
  for (const int s : {1, 63, 64, 65}) ok &= correct<__nv_bfloat16>({1, s, 6, 2, 64, 64, 2});
  Case bad{2, 300, 4, 2, 128, 128, 3};
  bad.bad = true;
  ok &= correct<__nv_bfloat16>(bad);
  bad.blocks = true;
  ok &= correct<__half>(bad);
  ok &= correct<__nv_bfloat16>({1, 70, 32, 1, 64, 64, 32});
  return ok;
}

double milliseconds(const std::function<void()>& call) {
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  std::vector<float> times;
  double total = 0;
  for (int i = 0; i < 23 && (i < 5 || total < 700); ++i) {
    cudaEventRecord(begin);
    call();
    cudaEventRecord(end);
    check(cudaEventSynchronize(end), "timing");
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    if (i > 1) times.push_back(ms);
    total += ms;
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

bool time_case(Case c, int top_n, bool once) {
  c.num_ranges = top_n;
  c.blocks = true;
  Problem<__nv_bfloat16> x(c, top_n);
  const size_t bytes = nsa::device::workspace_bytes(x.p);
  Buffer<char> workspace(bytes);
  workspace.fill(0xff);
  check(nsa::device::row_attention_forward(x.forward(), nullptr), "forward");
  x.run(workspace.data);
  if (once) {
    Buffer<char> room(nsa::device::workspace_bytes(x.forward(), top_n));
    check(selected_attention_forward(x.forward(), top_n, room.data, nullptr), "forward");
    return cudaDeviceSynchronize() == cudaSuccess;
  }
  const int64_t rows = x.query_rows(c), keys = x.key_rows(c);
  const Distances d =
      compare(x, std::max<int64_t>(1, rows / 3001), std::max<int64_t>(1, keys / 211));
  bool ok = d.within(1.5e-2);
  const double ms = milliseconds([&] { x.run(workspace.data); });
  bool forward_ok = true;
  double keys_ms = 0;
  {
    const RowAttention f = x.forward();
    Buffer<char> room(nsa::device::workspace_bytes(f, top_n));
    room.fill(0xff);
    forward_ok = forward_correct(x, top_n, 1.5e-2);
    keys_ms = milliseconds([&] { selected_attention_forward(f, top_n, room.data, nullptr); });
  }
  const double forward_ms =
      milliseconds([&] { nsa::device::row_attention_forward(x.forward(), nullptr); });
  ok &= forward_ok;
  double pairs = 0;
  for (int t = 0; t < c.s; ++t) pairs += std::min(top_n, t / 64 + 1);
  const double flop = pairs * c.batch * c.heads() * 64 * 2 * (3 * c.dk + 2 * c.dv);
  const double tensors = 2.0 * (rows + keys) * (c.dk + c.dv);
  std::printf(
      "%s %-44s backward %8.3f ms %5.0f TFLOP/s, forward by rows %7.3f by keys %7.3f ms, workspace "
      "%.0f MB (%.2f) "
      "d_q %.1e d_k %.1e d_v %.1e\n",
      ok ? "ok  " : "FAIL", c.name().c_str(), ms, flop / ms * 1e-9, forward_ms, keys_ms,
      bytes / 1e6, bytes / tensors, d.q, d.k, d.v);
  std::fflush(stdout);
  return ok;
}

}  // namespace

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("no CUDA device: not run");
    return 77;
  }
  const auto asked = [&](const char* flag) {
    return std::any_of(argv + 1, argv + argc, [&](char* x) { return std::strcmp(x, flag) == 0; });
  };
  const bool once = asked("--once");
  if (!asked("--time") && !once) {
    const bool ok = all_correct();
    std::puts(ok ? "all correct" : "FAILED");
    return ok ? 0 : 1;
  }
  const Case cases[] = {{1, 8192, 16, 4, 192, 128, 16},  {8, 2048, 6, 2, 64, 64, 16},
                        {1, 32768, 16, 4, 192, 128, 16}, {1, 65536, 16, 4, 192, 128, 16},
                        {1, 32768, 4, 16, 128, 128, 16}, {1, 32768, 1, 64, 128, 128, 16}};
  bool ok = true;
  for (const Case& c : cases)
    if (!asked("--short") || c.s < 10000) ok &= time_case(c, 16, once);
  return ok ? 0 : 1;
}

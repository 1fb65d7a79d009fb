// The parts of the backward pass of interval attention that pass over memory once.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "nsa/kernels/common/launch.cuh"
#include "nsa/kernels/common/vector.cuh"
#include "nsa/kernels/interval/backward_chunks.h"
#include "nsa/kernels/interval/interval_rows.h"
#include "nsa/kernels/interval/sm90/pair_gradients.cuh"

namespace nsa::kernels::portable {

using sm90::all_finite, sm90::BackwardPlan, sm90::Columns, sm90::kBusySms, sm90::kKeysOfTile,
    sm90::Pair, sm90::Row, sm90::Span;

namespace {

constexpr float kLog2e = 1.4426950408889634f;
constexpr int kThreads = 256;

__device__ float number(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ float number(__half x) { return __half2float(x); }
template <typename T>
__device__ T element(float x) {
  if constexpr (std::is_same_v<T, __half>)
    return __float2half_rn(x);
  else
    return __float2bfloat16_rn(x);
}

/// Eight elements, from one load of 16 bytes.
template <typename T>
struct Eight {
  alignas(16) T value[8];
};

constexpr int kRowsInFlight = 4;

/// kLanes lanes a row of [B, S, Hq], 16 bytes of each tensor a lane; blockIdx.y is the sequence.
template <typename T, int kLanes>
__device__ __forceinline__ void prepare_row(const IntervalBackward& p, const BackwardPlan& plan) {
  const IntervalAttention& f = p.forward;
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *plan.bad = 0;
  constexpr unsigned kStep = kThreads / kLanes;
  const unsigned lane = threadIdx.x % kLanes, heads = f.num_heads, rows = f.num_queries * heads,
                 first = blockIdx.x * (kRowsInFlight * kStep) + threadIdx.x / kLanes;
  const int64_t batch = blockIdx.y, before = batch * rows;  // rows of sequences before this one
  Eight<T> out[kRowsInFlight], d_out[kRowsInFlight];
#pragma unroll
  for (int i = 0; i < kRowsInFlight; ++i) {
    const unsigned row = min(first + i * kStep, rows - 1);
    out[i] = reinterpret_cast<const Eight<T>*>(static_cast<const T*>(f.out) +
                                               (before + row) * (kLanes * 8))[lane];
    const T* const own = static_cast<const T*>(p.d_out.data) + batch * p.d_out.batch +
                         row / heads * p.d_out.token + row % heads * p.d_out.head;
    d_out[i] = reinterpret_cast<const Eight<T>*>(own)[lane];
  }
#pragma unroll
  for (int i = 0; i < kRowsInFlight; ++i) {
    float sum = 0.f;
#pragma unroll
    for (int c = 0; c < 8; ++c) sum += number(d_out[i].value[c]) * number(out[i].value[c]);
#pragma unroll
    for (int mask = kLanes / 2; mask > 0; mask /= 2) sum += __shfl_xor_sync(~0u, sum, mask);
    const unsigned row = first + i * kStep;
    if (row >= rows || lane != 0) continue;
    const unsigned group = heads / f.num_kv_heads, head = row % heads;
    const int64_t place =
        ((batch * f.num_kv_heads + head / group) * f.num_queries + row / heads) * group +
        head % group;
    const float lse = f.lse[before + row];
    const float d_lse = p.d_lse == nullptr ? 0.f : p.d_lse[before + row];
    plan.lse[place] = lse == -INFINITY ? INFINITY : lse * kLog2e;
    plan.delta[place] = lse == -INFINITY ? 0.f : sum - d_lse;
  }
}

/// d_k and d_v of a key from partial sums, four columns a lane at a time; `row` counts rows of
/// [B, keys, Hkv]. Returns whether all are finite.
template <typename T>
__device__ __forceinline__ bool sum_key(const IntervalBackward& p, const BackwardPlan& plan,
                                        int64_t row) {
  constexpr int kMostPieces = 4;  // of 128 columns: head dims up to 256
  const IntervalAttention& f = p.forward;
  const int width = f.qk_head_dim + f.v_head_dim, lane = threadIdx.x % 32;
  const int64_t head = row % f.num_kv_heads, batch = row / f.num_kv_heads / f.num_keys,
                stride = int64_t(f.batch) * f.num_kv_heads * f.num_keys * width;
  const int key = static_cast<int>(row / f.num_kv_heads % f.num_keys);
  const int first = key / kKeysOfTile * kKeysOfTile;
  const int chunks =
      sm90::chunks_of(f, first, min(first + kKeysOfTile, f.num_keys), plan.chunk_tokens);
  const float* from =
      plan.partials + ((batch * f.num_kv_heads + head) * f.num_keys + key) * width + lane * 4;
  float4 sum[kMostPieces] = {};
#pragma unroll 2
  for (int chunk = 0; chunk < chunks; ++chunk) {
#pragma unroll
    for (int i = 0; i < kMostPieces; ++i) {
      if (i * 128 + lane * 4 >= width) continue;
      const float4 x = *reinterpret_cast<const float4*>(from + chunk * stride + i * 128);
      sum[i].x += x.x, sum[i].y += x.y, sum[i].z += x.z, sum[i].w += x.w;
    }
  }
  bool finite = true;
#pragma unroll
  for (int i = 0; i < kMostPieces; ++i) {
    const float4& x = sum[i];
    finite &= isfinite(x.x) && isfinite(x.y) && isfinite(x.z) && isfinite(x.w);
    const int column = i * 128 + lane * 4;
    if (column >= width) continue;
    T* const to = column < f.qk_head_dim
                      ? static_cast<T*>(p.d_k) + row * f.qk_head_dim + column
                      : static_cast<T*>(p.d_v) + row * f.v_head_dim + column - f.qk_head_dim;
    to[0] = element<T>(x.x), to[1] = element<T>(x.y);
    to[2] = element<T>(x.z), to[3] = element<T>(x.w);
  }
  return __all_sync(~0u, finite);
}

/// Adds the terms of d_q of a row.
__device__ void add_keys(Columns& sum, const IntervalBackward& g, const IntervalRows& rows,
                         int64_t row) {
  const IntervalAttention& f = g.forward;
  const int group = f.num_heads / f.num_kv_heads;
  const int64_t position = row / f.num_heads, batch = position / f.num_queries,
                token = position % f.num_queries, head = row % f.num_heads, kv_head = head / group;
  const Span keys = sm90::keys_of(f.rule, f.first_position + int(token), f.num_keys);
  for (int key = keys.begin; key < keys.end && !sum.lost(f.qk_head_dim); ++key) {
    const Row k(f.k, f.element, batch, key, kv_head);
    const int64_t place =
        ((batch * f.num_kv_heads + kv_head) * f.num_queries + token) * group + head % group;
    const Pair pair(f, Row(f.q, f.element, batch, token, head),
                    Row(g.d_out, f.element, batch, token, head), k,
                    Row(f.v, f.element, batch, key, kv_head), rows.lse[place], rows.delta[place]);
    sum.add(pair.ds, k, f.qk_head_dim);
  }
}

/// What other keys of a tile have spoilt holds no earlier sum any more: both are made again.
__device__ void mend_query(const IntervalBackward& g, const BackwardPlan& plan,
                           const IntervalBackward& earlier, int64_t row) {
  const IntervalAttention& f = g.forward;
  if (row / f.num_heads % f.num_queries < f.first_query) return;
  const Row to(g.d_q, row * f.qk_head_dim, f.element);
  if (all_finite(to, f.qk_head_dim)) return;
  Columns sum;
  if (g.earlier != nullptr) add_keys(sum, earlier, earlier.rows, row);
  add_keys(sum, g, {plan.lse, plan.delta, plan.bad}, row);
  sum.write(to, f.qk_head_dim);
}

__device__ void mend_key(const IntervalBackward& g, const BackwardPlan& plan, int64_t row) {
  const IntervalAttention& f = g.forward;
  const Row d_k(g.d_k, row * f.qk_head_dim, f.element), d_v(g.d_v, row * f.v_head_dim, f.element);
  if (all_finite(d_k, f.qk_head_dim) && all_finite(d_v, f.v_head_dim)) return;
  const int group = f.num_heads / f.num_kv_heads;
  const int64_t kv_head = row % f.num_kv_heads, batch = row / f.num_kv_heads / f.num_keys;
  const int key = int(row / f.num_kv_heads % f.num_keys);
  const Row k(f.k, f.element, batch, key, kv_head), v(f.v, f.element, batch, key, kv_head);
  const Span span = sm90::queries_of(f, key, key + 1);
  Columns sum_k, sum_v;
  for (int token = span.begin; token < span.end; ++token) {
    if (sum_k.lost(f.qk_head_dim) && sum_v.lost(f.v_head_dim)) break;
    for (int h = 0; h < group; ++h) {
      const int64_t head = kv_head * group + h;
      const Row q(f.q, f.element, batch, token, head),
          d_out(g.d_out, f.element, batch, token, head);
      const int64_t place =
          ((batch * f.num_kv_heads + kv_head) * f.num_queries + token) * group + h;
      const Pair pair(f, q, d_out, k, v, plan.lse[place], plan.delta[place]);
      sum_k.add(pair.ds, q, f.qk_head_dim);
      sum_v.add(pair.p, d_out, f.v_head_dim);
    }
  }
  sum_k.write(d_k, f.qk_head_dim);
  sum_v.write(d_v, f.v_head_dim);
}

__global__ void __launch_bounds__(kThreads)
    prepare_rows_kernel(const __grid_constant__ IntervalBackward p,
                        const __grid_constant__ BackwardPlan plan) {
  tokens::by_type(p.forward.element, [&](auto type) {
    if (p.forward.v_head_dim == 64) {
      prepare_row<decltype(type), 8>(p, plan);
    } else if (p.forward.v_head_dim == 128) {
      prepare_row<decltype(type), 16>(p, plan);
    } else {
      prepare_row<decltype(type), 32>(p, plan);
    }
  });
}

/// One warp a key, then a row of d_q.
__global__ void __launch_bounds__(kThreads, 1)
    finish_kernel(const __grid_constant__ IntervalBackward g,
                  const __grid_constant__ BackwardPlan plan,
                  const __grid_constant__ IntervalBackward earlier) {
  const IntervalAttention& f = g.forward;
  const bool partial = plan.num_chunks > 1, bad = *plan.bad != 0;
  const int64_t keys = int64_t(f.batch) * f.num_keys * f.num_kv_heads,
                queries = int64_t(f.batch) * f.num_queries * f.num_heads,
                rows = (partial || bad ? keys : 0) + (bad ? queries : 0);
  const int64_t warps = int64_t(gridDim.x) * (kThreads / 32);
  for (int64_t row = (int64_t(blockIdx.x) * kThreads + threadIdx.x) / 32; row < rows;
       row += warps) {
    if (row >= keys) {
      mend_query(g, plan, earlier, row - keys);
      continue;
    }
    bool finite = false;
    if (partial)
      tokens::by_type(f.element,
                      [&](auto type) { finite = sum_key<decltype(type)>(g, plan, row); });
    __syncwarp();
    if (!finite) mend_key(g, plan, row);
  }
}

unsigned blocks_for(int64_t items, int64_t of_block) {
  return static_cast<unsigned>((items + of_block - 1) / of_block);
}

}  // namespace

cudaError_t prepare_rows(const IntervalBackward& p, const BackwardPlan& plan, cudaStream_t stream) {
  const IntervalAttention& f = p.forward;
  const int lanes = f.v_head_dim / 8;  // of a row
  const dim3 blocks(
      blocks_for(int64_t(f.num_queries) * f.num_heads, kRowsInFlight * (kThreads / lanes)),
      f.batch);
  return launch(prepare_rows_kernel, blocks, kThreads, 0, stream, p, plan);
}

cudaError_t finish_gradients(const IntervalBackward& p, const BackwardPlan& plan,
                             cudaStream_t stream) {
  const IntervalAttention& f = p.forward;
  const int64_t keys = plan.num_chunks > 1 ? int64_t(f.batch) * f.num_keys * f.num_kv_heads : 0;
  return launch(finish_kernel, std::max(blocks_for(keys, kThreads / 32), kBusySms * 4u), kThreads,
                0, stream, p, plan, p.earlier != nullptr ? *p.earlier : IntervalBackward{});
}

}  // namespace nsa::kernels::portable

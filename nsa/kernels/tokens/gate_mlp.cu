// Gate MLP: a CTA takes 64 rows, a row being a token and a KV head, with the weights in shared
// memory. Backward computes the hidden layer again; gradients of the weights stay in registers over
// all rows of a CTA, and their sum over CTAs is left to the caller.
#include "nsa/kernels/common/launch.cuh"
#include "nsa/kernels/common/vector.cuh"
#include "nsa/kernels/tokens/gate_mlp_rows.cuh"
#include "nsa/kernels/tokens/token_kernels.h"

namespace nsa::kernels {
namespace {

using namespace tokens;
using namespace gate_mlp;

constexpr int kFewThreads = 128, kMostThreads = 512;
constexpr int kMostParts = 132 * 4;  // as many as an H200 has at once of 128 threads

/// As many threads as w1 has tiles, which keep the sums of one each. Those of wide heads keep
/// kTilesOfWide, and are as few as the hidden layer's tiles: registers are short.
constexpr int kMostOfOneTile = 128, kTilesOfWide = 3, kWideThreads = 384;
static_assert(kMostGateDim / 2 * kMostGateDim <= kTile * kTile * kWideThreads * kTilesOfWide);
static_assert(kMostGateDim / 2 / kTile * kRowGroups <= kWideThreads);
int threads_for(int head_dim) {
  constexpr int kNarrow = 64;
  return head_dim <= kNarrow          ? kFewThreads
         : head_dim <= kMostOfOneTile ? kMostThreads
                                      : kWideThreads;
}

template <typename T>
__device__ __forceinline__ void infer(const GateMlp& p, float* memory) {
  const Shared s(memory, p.head_dim);
  const int end = static_cast<int>(p.rows) * p.num_kv_heads;
  load_weights(p, s);
  for (int first = static_cast<int>(blockIdx.x) * kRows; first < end;
       first += static_cast<int>(gridDim.x) * kRows) {
    __syncthreads();
    load_means<T>(p, s, first, end);
    __syncthreads();
    const HiddenTile tile(s);
    if (tile.exists()) {
      float x[kTile][kTile];
      hidden_of(s, tile, x);
#pragma unroll
      for (int u = 0; u < kTile; ++u)
#pragma unroll
        for (int r = 0; r < kTile; ++r)
          s.hidden[tile.row(r) * s.unit_pitch + tile.unit(u)] = x[u][r] / (1.f + __expf(-x[u][r]));
    }
    __syncthreads();
    for (int i = threadIdx.x; i < kRows * kGates; i += static_cast<int>(blockDim.x)) {
      const int r = i / kGates, gate = i % kGates;
      if (first + r >= end) break;
      float sum = p.b2[gate];
      for (int unit = 0; unit < s.units; unit += kTile) {
        const float4 hidden = four(s.hidden + r * s.unit_pitch + unit),
                     w = four(s.w2 + gate * s.units + unit);
        sum =
            fmaf(w.w, hidden.w, fmaf(w.z, hidden.z, fmaf(w.y, hidden.y, fmaf(w.x, hidden.x, sum))));
      }
      p.logits[int64_t(first + r) * kGates + gate] = sum;
    }
  }
}

/// Sums over rows that a thread keeps: tiles of w1, of four units b1 and three of w2, one of b2.
template <int kTiles>
struct Sums {
  float w1[kTiles][kTile][kTile] = {}, unit[kTile][1 + kGates] = {}, b2 = 0;
};

/// Where a tile of w1 that this thread keeps begins; a unit behind the last: there is none.
struct WeightTile {
  int unit, column;
  __device__ __forceinline__ WeightTile(const Shared& s, int i) {
    const int tile = static_cast<int>(threadIdx.x) + i * static_cast<int>(blockDim.x);
    unit = tile / (s.dim / kTile) * kTile, column = tile % (s.dim / kTile) * kTile;
  }
};

/// d_hidden of the tile into s.hidden; sums of b1, w2 and b2.
template <int kTiles>
__device__ __forceinline__ void differentiate_hidden(const Shared& s, Sums<kTiles>& sums) {
  if (threadIdx.x < kGates)
    for (int r = 0; r < kRows; ++r) sums.b2 += s.d_logits[r * kGates + threadIdx.x];
  const HiddenTile tile(s);
  if (!tile.exists()) return;
  float x[kTile][kTile];
  hidden_of(s, tile, x);
#pragma unroll
  for (int r = 0; r < kTile; ++r) {
    float d_logits[kGates];
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate)
      d_logits[gate] = s.d_logits[tile.row(r) * kGates + gate];
#pragma unroll
    for (int u = 0; u < kTile; ++u) {
      const float sigmoid = 1.f / (1.f + __expf(-x[u][r])), silu = x[u][r] * sigmoid;
      float d = 0;
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        d = fmaf(d_logits[gate], s.w2[gate * s.units + tile.unit(u)], d);
        sums.unit[u][1 + gate] = fmaf(d_logits[gate], silu, sums.unit[u][1 + gate]);
      }
      d *= sigmoid + silu * (1.f - sigmoid);
      sums.unit[u][0] += d;
      s.hidden[tile.row(r) * s.unit_pitch + tile.unit(u)] = d;
    }
  }
}

/// d_w1 += d_hidden^T means, four units by four columns a tile.
template <int kTiles>
__device__ __forceinline__ void add_first_layer(const Shared& s, Sums<kTiles>& sums) {
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    const WeightTile at(s, i);
    if (at.unit >= s.units) return;
#pragma unroll 2
    for (int r = 0; r < kRows; ++r) {
      const float4 d = four(s.hidden + r * s.unit_pitch + at.unit);
      const float4 mean = four(s.means + r * s.dim_pitch + at.column);
      const float units[kTile] = {d.x, d.y, d.z, d.w};
      const float columns[kTile] = {mean.x, mean.y, mean.z, mean.w};
#pragma unroll
      for (int a = 0; a < kTile; ++a)
#pragma unroll
        for (int b = 0; b < kTile; ++b)
          sums.w1[i][a][b] = fmaf(units[a], columns[b], sums.w1[i][a][b]);
    }
  }
}

/// d_means = d_hidden w1, in the place of the means.
__device__ __forceinline__ void differentiate_means(const Shared& s) {
  const int columns = s.dim / kTile;
  for (int tile = threadIdx.x; tile < columns * (kRows / kTile);
       tile += static_cast<int>(blockDim.x)) {
    const int row = tile / columns * kTile, column = tile % columns * kTile;
    float sum[kTile][kTile] = {};
#pragma unroll 1
    for (int unit = 0; unit < s.units; unit += kTile) {
      float w[kTile][kTile];
#pragma unroll
      for (int a = 0; a < kTile; ++a) {
        const float4 one = four(s.w1 + (unit + a) * s.dim_pitch + column);
        w[a][0] = one.x, w[a][1] = one.y, w[a][2] = one.z, w[a][3] = one.w;
      }
#pragma unroll
      for (int r = 0; r < kTile; ++r) {
        const float4 d = four(s.hidden + (row + r) * s.unit_pitch + unit);
#pragma unroll
        for (int b = 0; b < kTile; ++b)
          sum[r][b] = fmaf(d.w, w[3][b],
                           fmaf(d.z, w[2][b], fmaf(d.y, w[1][b], fmaf(d.x, w[0][b], sum[r][b]))));
      }
    }
#pragma unroll
    for (int r = 0; r < kTile; ++r)
      *reinterpret_cast<float4*>(s.means + (row + r) * s.dim_pitch + column) =
          make_float4(sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
  }
}

/// Every head of a group has its share of the mean's gradient.
template <typename T>
__device__ void add_to_heads(const GateMlp& p, const Shared& s, int first, int end) {
  constexpr int kHeads = 6;  // loaded before the first is stored
  const int group = p.num_heads / p.num_kv_heads, vectors = s.dim / kVector;
  const int chunks = (group + kHeads - 1) / kHeads;
  for (int i = threadIdx.x; i < kRows * chunks * vectors; i += static_cast<int>(blockDim.x)) {
    const int column = i % vectors * kVector, chunk = i / vectors % chunks,
              r = i / vectors / chunks, head = chunk * kHeads;
    if (first + r >= end) continue;
    T* place = heads_of(p, static_cast<T*>(p.d_q), p.d_q_stride, first + r) + head * s.dim + column;
    const int heads = group - head < kHeads ? group - head : kHeads;
    uint4 bits[kHeads] = {};
#pragma unroll
    for (int h = 0; h < kHeads; ++h)
      if (h < heads) bits[h] = load_bits(place + h * s.dim);
    float share[kVector];
#pragma unroll
    for (int j = 0; j < kVector; ++j)
      share[j] = s.means[r * s.dim_pitch + column + j] / static_cast<float>(group);
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      if (h >= heads) break;
      float d[kVector];
      unpack<T>(d, bits[h]);
#pragma unroll
      for (int j = 0; j < kVector; ++j) d[j] += share[j];
      store(place + h * s.dim, d);
    }
  }
}

/// The sums of a CTA's threads to its part: those of b1 and w2 first over its groups of rows.
template <int kTiles>
__device__ void store_sums(const GateMlp& p, const Shared& s, const Sums<kTiles>& sums) {
  float* part = p.d_weights + int64_t(blockIdx.x) * gate_mlp_weights(s.dim);
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    const WeightTile at(s, i);
    if (at.unit >= s.units) break;
#pragma unroll
    for (int a = 0; a < kTile; ++a)
#pragma unroll
      for (int b = 0; b < kTile; ++b)
        part[(at.unit + a) * s.dim + at.column + b] = sums.w1[i][a][b];
  }
  part += s.units * s.dim;
  const int values = (1 + kGates) * s.units;
  const HiddenTile tile(s);
  float* shared = s.means;  // free now: [groups of rows, b1 and three rows of w2]
  if (tile.exists())
#pragma unroll
    for (int u = 0; u < kTile; ++u)
#pragma unroll
      for (int j = 0; j <= kGates; ++j)
        shared[tile.row_group * values + j * s.units + tile.unit(u)] = sums.unit[u][j];
  __syncthreads();
  for (int i = threadIdx.x; i < values; i += static_cast<int>(blockDim.x)) {
    float sum = 0;
#pragma unroll
    for (int g = 0; g < kRowGroups; ++g) sum += shared[g * values + i];
    part[i] = sum;
  }
  if (threadIdx.x < kGates) part[values + threadIdx.x] = sums.b2;
}

template <typename T, int kTiles>
__device__ __forceinline__ void differentiate(const GateMlp& p, float* memory) {
  const Shared s(memory, p.head_dim);
  const int end = static_cast<int>(p.rows) * p.num_kv_heads;
  Sums<kTiles> sums;
  load_weights(p, s);
  for (int first = static_cast<int>(blockIdx.x) * kRows; first < end;
       first += static_cast<int>(gridDim.x) * kRows) {
    __syncthreads();
    load_means<T>(p, s, first, end);
    for (int i = threadIdx.x; i < kRows * kGates; i += static_cast<int>(blockDim.x))
      s.d_logits[i] = first + i / kGates < end ? p.d_logits[int64_t(first) * kGates + i] : 0.f;
    __syncthreads();
    differentiate_hidden(s, sums);
    __syncthreads();
    add_first_layer(s, sums);
    __syncthreads();
    differentiate_means(s);
    __syncthreads();
    add_to_heads<T>(p, s, first, end);
  }
  __syncthreads();
  store_sums(p, s, sums);
}

/// Forward without d_logits.
template <int kTiles>
__device__ __forceinline__ void infer_or_differentiate(const GateMlp& p, float* memory) {
  by_type(p.element, [&](auto type) {
    if (p.d_logits == nullptr) {
      infer<decltype(type)>(p, memory);
    } else {
      differentiate<decltype(type), kTiles>(p, memory);
    }
  });
}

__global__ void __launch_bounds__(kMostThreads) gate_mlp_kernel(const __grid_constant__ GateMlp p) {
  NSA_DYNAMIC_SHARED(float, memory);
  infer_or_differentiate<1>(p, memory);
}
__global__ void __launch_bounds__(kWideThreads)
    wide_gate_mlp_kernel(const __grid_constant__ GateMlp p) {
  NSA_DYNAMIC_SHARED(float, memory);
  infer_or_differentiate<kTilesOfWide>(p, memory);
}

bool covered(const GateMlp& p) {
  return p.head_dim > 0 && p.head_dim % kVector == 0 && p.head_dim <= kMostGateDim &&
         p.num_kv_heads > 0 && p.num_heads % p.num_kv_heads == 0 && p.q_stride % kVector == 0 &&
         p.d_q_stride % kVector == 0 && p.rows * p.num_kv_heads < INT32_MAX - kMostParts * kRows;
}

cudaError_t launch(const GateMlp& p, cudaStream_t stream) {
  if (!covered(p)) return cudaErrorInvalidValue;
  if (p.rows == 0) return cudaSuccess;
  const size_t shared = gate_mlp_shared_bytes(p.head_dim);
  const auto kernel = p.head_dim <= kMostOfOneTile ? gate_mlp_kernel : wide_gate_mlp_kernel;
  const auto grid = static_cast<unsigned>(gate_mlp_parts(p.rows, p.num_kv_heads)),
             threads = static_cast<unsigned>(threads_for(p.head_dim));
  return portable::launch(kernel, grid, threads, shared, stream, p);
}

}  // namespace

size_t gate_mlp_shared_bytes(int head_dim) { return Shared::bytes(head_dim); }

int gate_mlp_parts(int64_t rows, int num_kv_heads) {
  const int64_t tiles = (rows * num_kv_heads + kRows - 1) / kRows;
  return static_cast<int>(tiles < kMostParts ? tiles : kMostParts);
}

cudaError_t gate_mlp_forward(const GateMlp& p, cudaStream_t stream) {
  return p.d_logits == nullptr ? launch(p, stream) : cudaErrorInvalidValue;
}

cudaError_t gate_mlp_backward(const GateMlp& p, cudaStream_t stream) {
  return p.d_logits != nullptr || p.rows == 0 ? launch(p, stream) : cudaErrorInvalidValue;
}

}  // namespace nsa::kernels

// What a CTA of the gate MLP has of its 64 rows: the weights and means of q in shared memory, and
// the hidden layer of them.
#pragma once
#include "nsa/kernels/common/vector.cuh"
#include "nsa/kernels/tokens/token_kernels.h"

namespace nsa::kernels::gate_mlp {

using tokens::kVector;
using tokens::load_bits;
using tokens::unpack;

constexpr int kRows = 64, kTile = 4, kGates = 3;
constexpr int kRowGroups = kRows / kTile;  // threads that share the rows of a unit, four each

/// Rows of shared memory, padded so that neighbours do not share banks; 16-byte aligned.
struct Shared {
  float *w1, *means, *hidden, *w2, *b1, *d_logits;
  int dim, units, dim_pitch, unit_pitch;

  __device__ Shared(float* at, int head_dim)
      : dim(head_dim), units(head_dim / 2), dim_pitch(dim + kTile), unit_pitch(units + kTile) {
    w1 = at;
    means = w1 + units * dim_pitch;
    hidden = means + kRows * dim_pitch;
    w2 = hidden + kRows * unit_pitch;
    b1 = w2 + kGates * units;
    d_logits = b1 + units;
  }
  static size_t bytes(int head_dim) {
    const int units = head_dim / 2;
    return sizeof(float) *
           static_cast<size_t>((units + kRows) * (head_dim + kTile) + kRows * (units + kTile) +
                               (kGates + 1) * units + kRows * kGates);
  }
};

__device__ __forceinline__ float4 four(const float* from) {
  return *reinterpret_cast<const float4*>(from);
}
__device__ __forceinline__ float dot(float4 a, float4 b, float sum) {
  return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

__device__ inline void load_weights(const GateMlp& p, const Shared& s) {
  const int columns = s.dim / kTile;
#pragma unroll 4
  for (int i = threadIdx.x; i < s.units * columns; i += static_cast<int>(blockDim.x))
    *reinterpret_cast<float4*>(s.w1 + i / columns * s.dim_pitch + i % columns * kTile) =
        make_float4(p.w1[i * kTile], p.w1[i * kTile + 1], p.w1[i * kTile + 2], p.w1[i * kTile + 3]);
  for (int i = threadIdx.x; i < kGates * s.units; i += static_cast<int>(blockDim.x))
    s.w2[i] = p.w2[i];
  for (int i = threadIdx.x; i < s.units; i += static_cast<int>(blockDim.x)) s.b1[i] = p.b1[i];
}

/// Where the heads of row `row` (token and KV head) begin in a tensor like q.
template <typename T>
__device__ T* heads_of(const GateMlp& p, T* q, int64_t stride, int row) {
  const int group = p.num_heads / p.num_kv_heads, token = row / p.num_kv_heads;
  return q + token * stride + (row - token * p.num_kv_heads) * group * p.head_dim;
}

/// Means of q over the heads of each row; zeros behind the last.
template <typename T>
__device__ void load_means(const GateMlp& p, const Shared& s, int first, int end) {
  constexpr int kHeads = 6;  // loaded at once
  const int group = p.num_heads / p.num_kv_heads, vectors = s.dim / kVector;
  for (int i = threadIdx.x; i < kRows * vectors; i += static_cast<int>(blockDim.x)) {
    const int r = i / vectors, column = i % vectors * kVector;
    float sum[kVector] = {};
    if (first + r < end) {
      const T* heads = heads_of(p, static_cast<const T*>(p.q), p.q_stride, first + r) + column;
      for (int head = 0; head < group; head += kHeads) {
        uint4 bits[kHeads] = {};
#pragma unroll
        for (int h = 0; h < kHeads; ++h)
          if (head + h < group) bits[h] = load_bits(heads + (head + h) * s.dim);
#pragma unroll
        for (int h = 0; h < kHeads; ++h) {
          if (head + h >= group) break;
          float one[kVector];
          unpack<T>(one, bits[h]);
#pragma unroll
          for (int j = 0; j < kVector; ++j) sum[j] += one[j];
        }
      }
    }
#pragma unroll
    for (int j = 0; j < kVector; ++j)
      s.means[r * s.dim_pitch + column + j] = sum[j] / static_cast<float>(group);
  }
}

/// What a thread does of the hidden layer: four units for four rows, each a quarter of all apart,
/// so that neighbours read neighbouring rows of shared memory.
struct HiddenTile {
  int unit_group, row_group, unit_groups;
  __device__ explicit HiddenTile(const Shared& s)
      : unit_group(static_cast<int>(threadIdx.x) % (s.units / kTile)),
        row_group(static_cast<int>(threadIdx.x) / (s.units / kTile)),
        unit_groups(s.units / kTile) {}
  __device__ bool exists() const { return row_group < kRowGroups; }
  __device__ int unit(int i) const { return unit_group + i * unit_groups; }
  __device__ int row(int i) const { return row_group + i * kRowGroups; }
};

/// The hidden layer of a tile before its activation.
__device__ __forceinline__ void hidden_of(const Shared& s, const HiddenTile& tile,
                                          float (&out)[kTile][kTile]) {
#pragma unroll
  for (int u = 0; u < kTile; ++u)
#pragma unroll
    for (int r = 0; r < kTile; ++r) out[u][r] = s.b1[tile.unit(u)];
#pragma unroll 1
  for (int d = 0; d < s.dim; d += kTile) {
    float4 mean[kTile];
#pragma unroll
    for (int r = 0; r < kTile; ++r) mean[r] = four(s.means + tile.row(r) * s.dim_pitch + d);
#pragma unroll
    for (int u = 0; u < kTile; ++u) {
      const float4 w = four(s.w1 + tile.unit(u) * s.dim_pitch + d);
#pragma unroll
      for (int r = 0; r < kTile; ++r) out[u][r] = dot(w, mean[r], out[u][r]);
    }
  }
}

}  // namespace nsa::kernels::gate_mlp

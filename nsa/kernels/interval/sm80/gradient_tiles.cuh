// What the two passes of the backward pass of interval attention share: a CTA of four warps holds
// the tile of 64 rows whose gradients it sums, 16 a warp, and passes by tiles of the other side.
#pragma once
#include "nsa/kernels/common/divisor.h"
#include "nsa/kernels/common/mma.cuh"
#include "nsa/kernels/common/quad.cuh"
#include "nsa/kernels/interval/interval_bounds.h"
#include "nsa/kernels/interval/sm90/interval_backward_launch.h"

namespace nsa::kernels::sm80 {

/// What a launch passes by value. A row of a KV head is a (token, head of the group) pair, row =
/// token * G + head; lse and delta lie in their order.
struct BackwardArguments {
  sm90::BackwardPlan plan;
  IntervalAttention forward;
  Strided d_out;
  void *d_q, *d_k, *d_v;
  bool adds;               // to what d_q holds
  int group, rows;         // G; rows of a KV head of a sequence
  int key_units;           // CTAs that sum d_k and d_v, before those of d_q
  int key_tiles, q_tiles;  // of a KV head of a sequence
  Divisor by_group, by_stride;
  float scale_log2;
};

/// One row of a tile: x is q or k, y is d_out or v. A row that does not exist is zeros; its
/// pointers are those of some other row.
template <typename T>
struct RowSource {
  const T *x, *y;
  bool exists;
};

/// The tensors of one KV head of one sequence.
template <typename T>
struct HeadTensors {
  const BackwardArguments& a;
  const T *q, *d_out, *k, *v;
  int64_t first_row;  // of lse and delta
  __device__ HeadTensors(const BackwardArguments& arguments, int batch, int kv_head)
      : a(arguments) {
    const auto begin = [&](const Strided& x, int head) {
      return static_cast<const T*>(x.data) + batch * x.batch + head * x.head;
    };
    q = begin(a.forward.q, kv_head * a.group), d_out = begin(a.d_out, kv_head * a.group);
    k = begin(a.forward.k, kv_head), v = begin(a.forward.v, kv_head);
    first_row = (int64_t(batch) * a.forward.num_kv_heads + kv_head) * a.rows;
  }
  __device__ RowSource<T> row(int row, bool exists) const {
    const int present = exists ? row : 0, token = a.by_group.quotient(present);
    const int64_t t = token, h = present - token * a.group;
    return {q + t * a.forward.q.token + h * a.forward.q.head,
            d_out + t * a.d_out.token + h * a.d_out.head, exists};
  }
  __device__ RowSource<T> key(int key, bool exists) const {
    const int64_t present = exists ? key : 0;
    return {k + present * a.forward.k.token, v + present * a.forward.v.token, exists};
  }
};

/// kPassing: rows of a passing tile; kStages: of them in shared memory.
template <int DK, int DV, int kPassing_, int kStages_, typename T>
struct GradientTiles {
  using Type = T;
  static constexpr int kQkHeadDim = DK, kVHeadDim = DV;
  static constexpr int kThreads = 128, kOwn = 64, kPassing = kPassing_, kStages = kStages_;
  static_assert(DK % 64 == 0 && DV % 64 == 0 && kPassing % 16 == 0 && 2 * kPassing <= kThreads);
  /// Of a warp's 16 rows and a passing tile.
  using Products = float[kPassing / 8][4];
  /// The same as A operands.
  using Weights = uint32_t[kPassing / 16][4];

  struct Shared {
    alignas(128) T own_x[kOwn * DK];
    alignas(128) T own_y[kOwn * DV];
    alignas(128) T x[kStages][kPassing * DK];
    alignas(128) T y[kStages][kPassing * DV];
    alignas(16) float lse[kStages][kPassing];  // of passing rows of Q
    alignas(16) float delta[kStages][kPassing];
  };

  /// Where a piece of 16 bytes lies: those of a row are swizzled within 128 bytes.
  template <int D>
  __device__ static uint32_t place(uint32_t tile, int row, int piece) {
    return tile + row * (D * 2) + (piece ^ (row % 8)) * 16;
  }

  template <int D>
  __device__ static void copy_row(uint32_t tile, int row, const T* from, bool exists) {
    const int piece = threadIdx.x % 8;
    const uint32_t to = place<D>(tile, row, piece);
#pragma unroll
    for (int c = 0; c < D; c += 64) copy_async_or_zero(to + c * 2, from + piece * 8 + c, exists);
  }
  /// kRows rows by all threads: `source(i)` is row i.
  template <int kRows, class Source>
  __device__ static void copy_rows(T* x, T* y, const Source& source) {
    const uint32_t x_tile = shared_address(x), y_tile = shared_address(y);
#pragma unroll
    for (int i = 0; i < kRows; i += kThreads / 8) {
      const int row = i + threadIdx.x / 8;
      const RowSource<T> from = source(row);
      copy_row<DK>(x_tile, row, from.x, from.exists);
      copy_row<DV>(y_tile, row, from.y, from.exists);
    }
  }

  /// to = 16 rows of the own tile times the transposed passing tile.
  template <int D>
  __device__ static void multiply(Products& to, const T* own, int first_row, const T* passing) {
    const int lane = threadIdx.x % 32;
    const uint32_t a_place = place<D>(shared_address(own), first_row + lane % 16, lane / 16),
                   b_place =
                       place<D>(shared_address(passing), lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
    for (int n = 0; n < kPassing / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) to[n][i] = 0.f;
#pragma unroll
    for (int c = 0; c < D / 16; ++c) {
      uint32_t a[4];
      load_matrices(a, column(a_place, c));
#pragma unroll
      for (int n = 0; n < kPassing / 16; ++n) {
        uint32_t b[4];
        load_matrices(b, column(b_place, c) + n * (16 * D * 2));
        multiply_add<T>(to[2 * n], a, b[0], b[1]);
        multiply_add<T>(to[2 * n + 1], a, b[2], b[3]);
      }
    }
  }

  /// sum += weights times kColumns columns of the passing tile; `passing` is its first row's first
  /// of them.
  template <int D, int kColumns = D>
  __device__ static void accumulate(float (&sum)[kColumns / 8][4], const Weights& weights,
                                    const T* passing) {
    const int lane = threadIdx.x % 32;
    const uint32_t b_place = place<D>(shared_address(passing), lane % 16, lane / 16);
#pragma unroll
    for (int n = 0; n < kPassing / 16; ++n)
#pragma unroll
      for (int c = 0; c < kColumns / 16; ++c) {
        uint32_t b[4];
        load_matrices_transposed(b, column(b_place, c) + n * (16 * D * 2));
        multiply_add<T>(sum[2 * c], weights[n], b[0], b[1]);
        multiply_add<T>(sum[2 * c + 1], weights[n], b[2], b[3]);
      }
  }

  /// Accumulators as A operands: the same columns in the same threads.
  __device__ static void pack_weights(Weights& to, const Products& from) {
#pragma unroll
    for (int n = 0; n < kPassing / 16; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float (&half)[4] = from[2 * n + i / 2];
        to[n][i] = pack<T>(half[i % 2 * 2], half[i % 2 * 2 + 1]);
      }
  }

  /// A warp's 16 rows times `factor`. `target(row)` is where a row goes, or null; with `adds` it is
  /// added to what lies there. Whether all values of rows with a place are finite.
  template <int D, class Target>
  __device__ static bool store(const float (&sum)[D / 8][4], float factor, const Target& target,
                               bool adds = false) {
    const int lane = threadIdx.x % 32;
    bool good = true;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      T* const to = target(lane / 4 + 8 * r);
      float probe = 0.f;  // what is not finite stays so in a sum
#pragma unroll
      for (int c = 0; c < D / 8; c += 4) {
        float values[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const float value = sum[c + i / 2][2 * r + i % 2];
          probe += value;
          values[i] = value * factor;
        }
        if (adds)
          portable::add_eight<T>(
              values, portable::quad_pairs(to == nullptr ? uint4{}
                                                         : *reinterpret_cast<const uint4*>(
                                                               to + c * 8 + lane % 4 * 8)));
        const uint4 whole = whole_columns<T>(values);
        if (to != nullptr) *reinterpret_cast<uint4*>(to + c * 8 + lane % 4 * 8) = whole;
      }
      good &= to == nullptr || isfinite(probe);
    }
    return good;
  }

 private:
  /// The c-th 16 columns behind those of `place`: pieces 2 c and 2 c + 1 of a row.
  __device__ static uint32_t column(uint32_t place, int c) {
    return (place ^ (c % 4 * 32)) + c / 4 * 128;
  }
};

}  // namespace nsa::kernels::sm80

// Blocks that an index scores highest. A CTA has 384 rows, a row is a (token, head) pair; it passes
// by the blocks of keys before its last token's own, and a lane keeps the best of its row in
// registers: all tokens of such a block are visible, so nothing is masked.
#include <limits>

#include "nsa/kernels/common/alignment.h"
#include "nsa/kernels/common/divisor.h"
#include "nsa/kernels/common/launch.cuh"
#include "nsa/kernels/common/max_or_nan.cuh"
#include "nsa/kernels/common/mma.cuh"
#include "nsa/kernels/common/vector.cuh"
#include "nsa/kernels/index/index_bytes.h"
#include "nsa/kernels/index/index_selection.h"

namespace nsa::kernels {
namespace {

using namespace portable;

constexpr int kWarps = 12, kThreads = kWarps * 32, kRows = kWarps * 32, kStages = 3;
constexpr int kOthers = kMostIndexed - 1;  // besides the own block

struct IndexArguments {
  IndexSelection problem;
  Divisor by_heads;
  int rows, tiles;  // of a sequence
};

/// What `best` sorts by: NaN below every number, places without a block below all; +0 is -0.
constexpr int kNoBlock = INT32_MIN, kNan = INT32_MIN + 1;
__device__ int sortable(float score) {
  if (isnan(score)) return kNan;
  const int bits = __float_as_int(score + 0.f);
  return bits ^ (bits >> 31 & 0x7fffffff);
}

/// The best blocks of a row, by falling score; equal ones in the order they came in.
struct BestBlocks {
  int score[kOthers], id[kOthers];

  __device__ BestBlocks() {
#pragma unroll
    for (int i = 0; i < kOthers; ++i) score[i] = kNoBlock, id[i] = INT32_MAX;
  }
  __device__ void insert(int block_score, int block) {
    bool above = false;  // from its place on all move down, equal ones too
#pragma unroll
    for (int i = 0; i < kOthers; ++i) {
      above = above || block_score > score[i];
      const int old_score = score[i], old_id = id[i];
      if (above) score[i] = block_score, id[i] = block;
      if (above) block_score = old_score, block = old_id;
    }
  }
};

/// Ascending, in registers.
__device__ void sort(int (&x)[kMostIndexed]) {
#pragma unroll
  for (int size = 2; size <= kMostIndexed; size *= 2)
#pragma unroll
    for (int step = size / 2; step > 0; step /= 2)
#pragma unroll
      for (int i = 0; i < kMostIndexed; ++i) {
        const int j = i ^ step;
        if (j < i) continue;
        const int low = min(x[i], x[j]), high = max(x[i], x[j]);
        const bool rising = (i & size) == 0;
        x[i] = rising ? low : high, x[j] = rising ? high : low;
      }
}

template <typename T, int D>
struct IndexTiles {
  static constexpr int kPieces = D / 8;  // of 16 bytes, of a row
  static constexpr int kTile = kIndexedBlock * D * 2;
  static_assert(kRows * D * 2 <= kStages * kTile && kStages * kTile <= kIndexBytes);

  /// Pieces of a row are swizzled within 128 bytes.
  __device__ static uint32_t place(uint32_t tile, int row, int piece) {
    return tile + row * (D * 2) + (piece ^ (row % 8)) * 16;
  }
  /// `source(row)` is a row's first element.
  template <class Source>
  __device__ static void copy_rows(uint32_t tile, int count, const Source& source) {
    for (int i = threadIdx.x; i < count * kPieces; i += kThreads) {
      const int row = i / kPieces, piece = i % kPieces;
      const T* const from = source(row);
      copy_async(place(tile, row, piece), from + piece * 8);
    }
  }
  __device__ static void copy_block(const IndexSelection& p, uint32_t tile, int batch, int block) {
    const T* const first = static_cast<const T*>(p.k.data) + batch * p.k.batch +
                           int64_t(block) * kIndexedBlock * p.k.token;
    copy_rows(tile, kIndexedBlock, [&](int row) { return first + row * p.k.token; });
  }

  /// The rows of a warp as operands: 16 rows by 16 columns each.
  using Rows = uint32_t[2][D / 16][4];

  /// The largest product of each row of a thread: rows lane / 4, and 8, 16, 24 below it.
  __device__ static void largest(float (&most)[4], const Rows& rows, uint32_t tile) {
    const int lane = threadIdx.x % 32;
    const uint32_t b_place = place(tile, lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
    for (int i = 0; i < 4; ++i) most[i] = -INFINITY;
#pragma unroll 1
    for (int n = 0; n < kIndexedBlock / 16; ++n) {
      float sum[2][2][4] = {};
#pragma unroll
      for (int c = 0; c < D / 16; ++c) {
        uint32_t b[4];
        load_matrices(b, (b_place ^ (c % 4 * 32)) + c / 4 * 128 + n * (16 * D * 2));
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          multiply_add<T>(sum[m][0], rows[m][c], b[0], b[1]);
          multiply_add<T>(sum[m][1], rows[m][c], b[2], b[3]);
        }
      }
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          float& own = most[m * 2 + i / 2 % 2];
          own = max_or_nan(own, sum[m][i / 4][i % 4]);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int step = 1; step < 4; step *= 2)
        most[i] = max_or_nan(most[i], __shfl_xor_sync(~0u, most[i], step));
  }

  __device__ static void load_rows(Rows& rows, uint32_t tile) {
    const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * 32;
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int c = 0; c < D / 16; ++c)
        load_matrices(rows[m][c], place(tile, first + m * 16 + lane % 16, c * 2 + lane / 16));
  }

  __device__ static void run(const IndexArguments& a) {
    const IndexSelection& p = a.problem;
    const uint32_t shared = shared_address(dynamic_shared());
    // Later rows have more blocks before them and go first.
    const int batch = blockIdx.x % p.batch, first = (a.tiles - 1 - blockIdx.x / p.batch) * kRows;
    const T* const q = static_cast<const T*>(p.q.data) + batch * p.q.batch;
    copy_rows(shared, kRows, [&](int i) {
      const int row = min(first + i, a.rows - 1), token = a.by_heads.quotient(row);
      return q + token * p.q.token + (row - token * p.num_heads) * p.q.head;
    });
    commit_copies();
    wait_copies<0>();
    __syncthreads();
    Rows rows;
    load_rows(rows, shared);
    __syncthreads();

    const int blocks = a.by_heads.quotient(min(first + kRows, a.rows) - 1) / kIndexedBlock;
#pragma unroll
    for (int i = 0; i < kStages - 1; ++i) {
      if (i < blocks) copy_block(p, shared + i * kTile, batch, i);
      commit_copies();
    }
    // Of the four rows of a quad lane i has row i.
    const int lane = threadIdx.x % 32;
    const int own = first + threadIdx.x / 32 * 32 + lane % 4 * 8 + lane / 4;
    const bool exists = own < a.rows;
    const int own_block = exists ? a.by_heads.quotient(own) / kIndexedBlock : 0;
    BestBlocks best;
    int stage = 0;
    for (int block = 0; block < blocks; ++block) {
      wait_copies<kStages - 2>();
      __syncthreads();
      const int next = block + kStages - 1;
      if (next < blocks)
        copy_block(p, shared + (stage == 0 ? kStages - 1 : stage - 1) * kTile, batch, next);
      commit_copies();
      float most[4];
      largest(most, rows, shared + stage * kTile);
      const float score = lane % 4 < 2 ? (lane % 2 ? most[1] : most[0])
                          : lane % 2   ? most[3]
                                       : most[2];
      const int block_score = block < own_block ? sortable(score) : kNoBlock;
      if (__any_sync(~0u, block_score > best.score[kOthers - 1])) best.insert(block_score, block);
      stage = stage == kStages - 1 ? 0 : stage + 1;
    }
    if (!exists) return;
    int ids[kMostIndexed];
    ids[kOthers] = own_block;
#pragma unroll
    for (int i = 0; i < kOthers; ++i) ids[i] = i < p.top_n - 1 ? best.id[i] : INT32_MAX;
    sort(ids);
    int32_t* const to = p.block_idx + (int64_t(batch) * a.rows + own) * p.top_n;
#pragma unroll
    for (int i = 0; i < kMostIndexed; ++i)
      if (i < p.top_n) to[i] = ids[i] == INT32_MAX ? -1 : ids[i];
  }
};

__global__ void __launch_bounds__(kThreads, 1)
    index_selection_kernel(const __grid_constant__ IndexArguments a) {
  tokens::by_type(a.problem.element, [&](auto type) {
    if (a.problem.head_dim == 64) {
      IndexTiles<decltype(type), 64>::run(a);
    } else {
      IndexTiles<decltype(type), 128>::run(a);
    }
  });
}

}  // namespace

const char* unsupported_reason(const IndexSelection& p) {
  if (p.head_dim != 64 && p.head_dim != 128) return "heads of an index are 64 or 128 wide";
  if (p.block_size != kIndexedBlock) return "blocks have 128 tokens";
  if (p.top_n < 1 || p.top_n > kMostIndexed) return "a row has 1 to 16 blocks";
  if (int64_t{p.num_tokens} * p.num_heads > std::numeric_limits<int>::max() / 2)
    return "a sequence has too many rows";
  if (!aligned(p.q) || !aligned(p.k)) return "an address or stride is no multiple of 16 bytes";
  return nullptr;
}

cudaError_t select_by_index(const IndexSelection& p, cudaStream_t stream) {
  if (unsupported_reason(p) != nullptr) return cudaErrorInvalidValue;
  IndexArguments a{p, Divisor(p.num_heads), p.num_tokens * p.num_heads, 0};
  a.tiles = (a.rows + kRows - 1) / kRows;
  if (a.rows == 0 || p.batch == 0) return cudaSuccess;
  return launch(index_selection_kernel, dim3(unsigned(a.tiles) * p.batch), dim3(kThreads),
                kIndexBytes, stream, a);
}

}  // namespace nsa::kernels

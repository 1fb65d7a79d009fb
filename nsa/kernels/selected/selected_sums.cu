#include "nsa/kernels/selected/selected_sums.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "nsa/kernels/common/launch.cuh"
#include "nsa/kernels/common/mma.cuh"
#include "nsa/kernels/common/quad.cuh"
#include "nsa/kernels/common/vector.cuh"
#include "nsa/kernels/interval/backward_chunks.h"
#include "nsa/kernels/selected/parts.cuh"

namespace nsa::kernels::portable {
namespace {

constexpr int kThreads = 256;

struct StatsArguments {
  Strided d_out;
  const void* out;
  const float *lse, *d_lse;
  float2* stats;
  int64_t num_rows;
  int num_queries, num_heads, dim;
  Element element;
};

/// kDim / 8 lanes a row.
template <int kDim, typename T>
__device__ __forceinline__ void row_statistics(const StatsArguments& a) {
  constexpr int kLanes = kDim / 8;
  const int64_t row = (int64_t(blockIdx.x) * kThreads + threadIdx.x) / kLanes;
  const int piece = threadIdx.x % kLanes;
  const bool valid = row < a.num_rows;
  float delta = 0.f;
  bool finite = true;
  if (valid) {
    const int64_t token = row / a.num_heads, head = row % a.num_heads;
    const T* d_out = static_cast<const T*>(a.d_out.data) + token / a.num_queries * a.d_out.batch +
                     token % a.num_queries * a.d_out.token + head * a.d_out.head;
    const uint4 x = *reinterpret_cast<const uint4*>(d_out + piece * 8);
    const uint4 y =
        *reinterpret_cast<const uint4*>(static_cast<const T*>(a.out) + row * kDim + piece * 8);
    const uint32_t xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 d = unpack(xs[i], T{}), o = unpack(ys[i], T{});
      finite = finite && isfinite(d.x) && isfinite(d.y);
      delta += d.x * o.x + d.y * o.y;
    }
  }
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) {
    delta += __shfl_xor_sync(~0u, delta, step);
    finite &= static_cast<bool>(__shfl_xor_sync(~0u, static_cast<int>(finite), step));
  }
  if (!valid || piece != 0) return;
  const float lse = a.lse[row];
  finite = finite && isfinite(lse);
  a.stats[row] = make_float2(finite ? lse * 1.4426950408889634f : NAN,
                             a.d_lse == nullptr ? delta : delta - a.d_lse[row]);
}

__global__ void __launch_bounds__(kThreads) stats_kernel(const __grid_constant__ StatsArguments a) {
  tokens::by_type(a.element, [&](auto type) {
    if (a.dim == 64) {
      row_statistics<64, decltype(type)>(a);
    } else if (a.dim == 128) {
      row_statistics<128, decltype(type)>(a);
    } else {
      row_statistics<256, decltype(type)>(a);
    }
  });
}

struct QueryArguments {
  const void* parts;
  const int32_t* row_counts;
  void* out;
  int64_t out_stride;  // from token to token
  JoinedQueries joined;
  int64_t num_pieces;  // pieces of 8 columns, all rows of the set
  int first_head, first_token, tokens, tokens_of_set, num_queries, num_kv_heads, max_tiles;
  int tokens_of_batch;             // of d_q
  int group_size, pieces_of_head;  // dk / 8
};

/// Values of columns first + 8 j + 2 q and the next, j of 4, of a quad's thread q turned back by
/// those of their token.
__device__ __forceinline__ void rotate_back(float (&x)[8], const float2* cos_sin, int first,
                                            int quad) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float2 angle = cos_sin[first / 2 + 4 * j + quad];
    const float even = x[2 * j], odd = x[2 * j + 1];
    x[2 * j] = even * angle.x + odd * angle.y, x[2 * j + 1] = odd * angle.x - even * angle.y;
  }
}

/// A thread sums 16 bytes of the parts of one row of d_q, and of the terms that join it.
template <typename T>
__device__ __forceinline__ void sum_queries(const QueryArguments& a, int block) {
  const int64_t thread = int64_t(block) * kThreads + threadIdx.x;
  const bool valid = thread < a.num_pieces;  // the same for a quad
  const int64_t index = valid ? thread : a.num_pieces - 1;
  const int pieces_of_row = a.group_size * a.pieces_of_head;
  const int row_of_set = static_cast<int>(index / pieces_of_row);
  const int piece = static_cast<int>(index % pieces_of_row), quad = piece % 4;
  const int head = piece / 4 % a.group_size, columns = piece / 4 / a.group_size;
  const int head_index = a.first_head + row_of_set / a.tokens, token = row_of_set % a.tokens;
  const int64_t batch = head_index / a.num_kv_heads, kv_head = head_index % a.num_kv_heads;
  const auto row_of = [&](int tokens_of_batch) {
    return (batch * tokens_of_batch + a.first_token + token) * a.num_kv_heads + kv_head;
  };
  const int count = a.row_counts[row_of(a.num_queries)];
  const int64_t token_of_all = batch * a.tokens_of_batch + a.first_token + token;
  const int column = static_cast<int>(kv_head * a.group_size + head) * a.pieces_of_head * 8 +
                     columns * 32 + quad * 8;  // of all heads
  uint4 terms[2];
#pragma unroll
  for (int i = 0; i < 2; ++i)
    if (a.joined.terms[i] != nullptr)
      terms[i] = __ldcs(reinterpret_cast<const uint4*>(
          static_cast<const T*>(a.joined.terms[i]) +
          token_of_all * a.num_kv_heads * pieces_of_row * 8 + column));
  const uint32_t first =
      ((row_of_set / a.tokens) * a.tokens_of_set + token) * a.max_tiles * a.group_size + head;
  const uint4* parts = static_cast<const uint4*>(a.parts) + columns * 32 + quad;
  float sum[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) sum[i] = count < 0 ? NAN : 0.f;
#pragma unroll 4
  for (int tile = 0; tile < count; ++tile)
    add_eight<T>(sum,
                 __ldcs(parts + first_of_part(first + tile * a.group_size, a.pieces_of_head * 8)));
#pragma unroll
  for (int i = 0; i < 2; ++i)
    if (a.joined.terms[i] != nullptr) add_eight<T>(sum, quad_pairs(terms[i]));
  if (a.joined.cos_sin != nullptr)
    rotate_back(sum, a.joined.cos_sin + int64_t(a.first_token + token) * (a.pieces_of_head * 4),
                columns * 32, quad);
  const uint4 whole = whole_columns<T>(sum);
  if (valid)
    *reinterpret_cast<uint4*>(static_cast<T*>(a.out) + token_of_all * a.out_stride + column) =
        whole;
}

struct KeyArguments {
  const float* slots;
  float* sums;
  const int32_t* first_item;  // null: no slots
  void *d_k, *d_v;
  int first_head, heads, items_of_head, tiles, num_keys, num_kv_heads, qk_head_dim, v_head_dim;
  int set, last_set, first_position, tokens_of_set;  // sets of tokens
  // Slots of the whole tiles: [chunks, heads, key_tiles], chunks as of `first_queries`.
  const float* early_slots;
  IntervalAttention first_queries;
  int chunk_tokens, key_tiles;
  Element element;

  __device__ int chunks(int tile) const {
    const int first = tile * kKeysOfTile / sm90::kKeysOfTile * sm90::kKeysOfTile;
    return first >= first_queries.num_keys
               ? 0
               : sm90::chunks_of(first_queries, first,
                                 min(first + sm90::kKeysOfTile, first_queries.num_keys),
                                 chunk_tokens);
  }
  /// Blocks of threads: 64 keys x 32 columns each.
  int blocks() const { return tiles * heads * ((qk_head_dim + v_head_dim) / 32); }
};

/// A warp adds up 8 keys x 32 columns of a tile. Slots have the order of the accumulators that fill
/// them: value i of thread t stands at i * 128 + t; key t / 32 * 16 + t % 32 / 4 + 8 * (i / 2 % 2),
/// column i / 4 * 8 + t % 4 * 2 + i % 2; those of d_k, then those of d_v.
template <typename T>
__device__ __forceinline__ void sum_keys(const KeyArguments& a, int block) {
  const int tile = block % a.tiles, head_of_set = block / a.tiles % a.heads,
            head_index = a.first_head + head_of_set;
  const int group = block / a.tiles / a.heads;  // of 32 columns
  // Tokens before its first key attend nothing of a tile.
  const int own_set =
      min(max(0, tile * kKeysOfTile - a.first_position) / a.tokens_of_set, a.last_set);
  if (a.set < own_set) return;
  const int size = kKeysOfTile * (a.qk_head_dim + a.v_head_dim);
  int begin = 0, end = 0;
  if (a.first_item != nullptr) {
    const int32_t* first_item = a.first_item + int64_t(head_of_set) * (a.tiles + 1) + tile;
    begin = first_item[0], end = first_item[1];
  }
  if (begin == end && a.set != own_set && a.set != a.last_set) return;
  const int half = threadIdx.x / 128, thread = threadIdx.x % 128;
  const int first_value = group * 16 + half * 2;
  const float* slots = a.slots + int64_t(head_of_set) * a.items_of_head * size + thread;
  float* sums = a.sums + (int64_t(head_of_set) * a.tiles + tile) * size + thread;
  float sum[8];
#pragma unroll
  for (int i = 0; i < 8; ++i)
    sum[i] = a.set == own_set ? 0.f : sums[(first_value + i / 2 * 4 + i % 2) * 128];
  const auto add = [&](const float* slot) {
#pragma unroll
    for (int i = 0; i < 8; ++i) sum[i] += slot[(first_value + i / 2 * 4 + i % 2) * 128];
  };
  if (a.early_slots != nullptr && a.set == own_set) {
    const int chunks = a.chunks(tile);
    const int64_t heads = int64_t(a.first_queries.batch) * a.num_kv_heads;
    for (int chunk = 0; chunk < chunks; ++chunk)
      add(a.early_slots + ((chunk * heads + head_index) * a.key_tiles + tile) * size + thread);
  }
#pragma unroll 2
  for (int item = begin; item < end; ++item) add(slots + int64_t(item) * size);
  if (a.set != a.last_set) {
#pragma unroll
    for (int i = 0; i < 8; ++i) sums[(first_value + i / 2 * 4 + i % 2) * 128] = sum[i];
    return;
  }
  const uint4 whole = whole_columns<T>(sum);
  const bool is_k = group * 32 < a.qk_head_dim;
  const int dim = is_k ? a.qk_head_dim : a.v_head_dim,
            column = group * 32 - (is_k ? 0 : a.qk_head_dim) + thread % 4 * 8;
  const int key = tile * kKeysOfTile + thread / 32 * 16 + thread % 32 / 4 + half * 8;
  if (key >= a.num_keys) return;
  const int64_t row = (int64_t(head_index / a.num_kv_heads) * a.num_keys + key) * a.num_kv_heads +
                      head_index % a.num_kv_heads;
  *reinterpret_cast<uint4*>(static_cast<T*>(is_k ? a.d_k : a.d_v) + row * dim + column) = whole;
}

/// Both in one launch, so that a few long lists of slots are added beside the many parts.
struct SumArguments {
  KeyArguments keys;
  QueryArguments queries;
};

__global__ void __launch_bounds__(kThreads)
    sum_kernel(const __grid_constant__ SumArguments a, int key_blocks) {
  const int block = static_cast<int>(blockIdx.x) - key_blocks;
  tokens::by_type(a.keys.element, [&](auto type) {
    if (block < 0) {
      sum_keys<decltype(type)>(a.keys, blockIdx.x);
    } else {
      sum_queries<decltype(type)>(a.queries, block);
    }
  });
}

char* at(void* workspace, size_t offset) { return static_cast<char*>(workspace) + offset; }

unsigned blocks_of(int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

}  // namespace

cudaError_t row_stats(const SelectedBackward& p, float* stats, cudaStream_t stream) {
  const int64_t rows = int64_t{p.batch} * p.num_queries * p.num_heads;
  StatsArguments a{};
  a.d_out = p.d_out, a.out = p.out, a.lse = p.lse, a.d_lse = p.d_lse;
  a.stats = reinterpret_cast<float2*>(stats);
  a.num_rows = rows, a.num_queries = p.num_queries, a.num_heads = p.num_heads;
  a.dim = p.v_head_dim, a.element = p.element;
  return launch(stats_kernel, blocks_of(rows * (a.dim / 8)), kThreads, 0, stream, a);
}

namespace {

QueryArguments query_arguments(const SelectedBackward& p, int tokens_of_batch,
                               const SelectedPlan& plan, void* workspace, int set) {
  QueryArguments a{};
  a.parts = at(workspace, plan.parts);
  a.row_counts = reinterpret_cast<const int32_t*>(at(workspace, plan.row_counts));
  if (p.joined.out != nullptr) a.joined = p.joined;
  a.out = p.joined.out == nullptr ? p.d_q : p.joined.out;
  a.out_stride =
      p.joined.out == nullptr ? int64_t{p.num_heads} * p.qk_head_dim : p.joined.out_stride;
  a.first_head = set / plan.chunk_sets * plan.heads_of_set;
  a.first_token = set % plan.chunk_sets * plan.tokens_of_set();
  a.tokens_of_set = plan.tokens_of_set();
  a.tokens = std::min(a.tokens_of_set, p.num_queries - a.first_token);
  a.num_queries = p.num_queries;
  a.tokens_of_batch = tokens_of_batch;
  a.num_kv_heads = p.num_kv_heads;
  a.max_tiles = plan.max_tiles_of_row;
  a.group_size = p.num_heads / p.num_kv_heads;
  a.pieces_of_head = p.qk_head_dim / 8;
  const int heads = std::min(plan.heads_of_set, plan.heads - a.first_head);
  a.num_pieces = int64_t{heads} * a.tokens * a.group_size * a.pieces_of_head;
  return a;
}

/// What does not depend on how later queries are cut.
KeyArguments key_arguments(const SelectedBackward& p, const sm90::SelectedEarly& early) {
  KeyArguments a{};
  a.d_k = p.d_k, a.d_v = p.d_v;
  a.heads = p.batch * p.num_kv_heads;
  a.tiles = (p.num_keys + kKeysOfTile - 1) / kKeysOfTile;
  a.num_keys = p.num_keys, a.num_kv_heads = p.num_kv_heads;
  a.qk_head_dim = p.qk_head_dim, a.v_head_dim = p.v_head_dim;
  a.tokens_of_set = 1;
  a.early_slots = early.words.slots, a.first_queries = early.problem.forward;
  a.chunk_tokens = early.plan.chunk_tokens, a.key_tiles = early.words.key_tiles;
  a.element = p.element;
  return a;
}

}  // namespace

cudaError_t sum_set(const SelectedBackward& p, int tokens_of_batch,
                    const sm90::SelectedEarly& early, const SelectedPlan& plan, void* workspace,
                    int set, cudaStream_t stream) {
  const QueryArguments queries = query_arguments(p, tokens_of_batch, plan, workspace, set);
  KeyArguments keys = key_arguments(p, early);
  keys.slots = reinterpret_cast<const float*>(at(workspace, plan.slots));
  keys.sums = reinterpret_cast<float*>(at(workspace, plan.sums));
  keys.first_item = reinterpret_cast<const int32_t*>(at(workspace, plan.first_item)) +
                    int64_t{set} * plan.heads_of_set * (plan.tiles + 1);
  keys.first_head = queries.first_head;
  keys.heads = std::min(plan.heads_of_set, plan.heads - keys.first_head);
  keys.items_of_head = plan.items_of_head;
  keys.set = set % plan.chunk_sets;
  keys.last_set = plan.chunk_sets - 1;
  keys.first_position = p.first_position;
  keys.tokens_of_set = plan.tokens_of_set();
  return launch(sum_kernel, keys.blocks() + blocks_of(queries.num_pieces), kThreads, 0, stream,
                SumArguments{keys, queries}, keys.blocks());
}

cudaError_t sum_early_slots(const SelectedBackward& p, const sm90::SelectedEarly& early,
                            cudaStream_t stream) {
  const KeyArguments keys = key_arguments(p, early);
  return launch(sum_kernel, keys.blocks(), kThreads, 0, stream, SumArguments{keys, {}},
                keys.blocks());
}

}  // namespace nsa::kernels::portable

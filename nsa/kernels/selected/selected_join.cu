#include "nsa/kernels/selected/selected_join.h"

#include <algorithm>

#include "nsa/kernels/common/launch.cuh"
#include "nsa/kernels/common/mma.cuh"
#include "nsa/kernels/common/quad.cuh"
#include "nsa/kernels/common/vector.cuh"
#include "nsa/kernels/selected/parts.cuh"

namespace nsa::kernels::portable {
namespace {

constexpr int kThreads = 256;

struct JoinArguments {
  const uint4* parts;
  const float2* part_stats;  // maximum, sum
  const int32_t* row_counts;
  uint4* out;
  float* lse;
  int64_t num_pieces;  // of 8 columns, all rows of the set
  int first_head, first_token, tokens, tokens_of_set, num_queries, tokens_of_batch, num_kv_heads;
  int max_tiles;
  int group_size, pieces_of_head;  // dv / 8
  float scale, scale_log2;
  Element element;
};

/// A thread joins 16 bytes of the parts of one row.
template <typename T>
__device__ __forceinline__ void join(const JoinArguments& a) {
  const int64_t thread = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  const bool valid = thread < a.num_pieces;  // the same for a quad
  const int64_t index = valid ? thread : a.num_pieces - 1;
  const int pieces_of_row = a.group_size * a.pieces_of_head;
  const int row_of_set = static_cast<int>(index / pieces_of_row);
  const int piece = static_cast<int>(index % pieces_of_row), quad = piece % 4;
  const int head = piece / 4 % a.group_size, columns = piece / 4 / a.group_size;
  const int head_index = a.first_head + row_of_set / a.tokens, token = row_of_set % a.tokens;
  const auto row_where = [&](int64_t tokens_of_batch) {
    return (head_index / a.num_kv_heads * tokens_of_batch + a.first_token + token) *
               a.num_kv_heads +
           head_index % a.num_kv_heads;
  };
  const int64_t row = row_where(a.tokens_of_batch);
  const int count = a.row_counts[row_where(a.num_queries)];
  const uint32_t first =
      ((row_of_set / a.tokens) * a.tokens_of_set + token) * a.max_tiles * a.group_size + head;
  const float2* stats = a.part_stats + first;
  const uint4* parts = a.parts + columns * 32 + quad;
  float peak = -INFINITY;
#pragma unroll 4
  for (int tile = 0; tile < count; ++tile)
    peak = fmaxf(peak, stats[int64_t(tile) * a.group_size].x);
  const float shift = peak == -INFINITY ? 0.f : peak;
  float total = count < 0 ? NAN : 0.f, sum[8] = {};
#pragma unroll 4
  for (int tile = 0; tile < count; ++tile) {
    const float2 own = stats[int64_t(tile) * a.group_size];
    const float weight = exp2f((own.x - shift) * a.scale_log2);
    total = fmaf(weight, own.y, total);
    add_eight<T>(sum,
                 __ldcs(parts + first_of_part(first + tile * a.group_size, a.pieces_of_head * 8)),
                 weight);
  }
  const float inverse = total == 0.f ? 0.f : 1.f / total;
#pragma unroll
  for (int i = 0; i < 8; ++i) sum[i] *= inverse;
  const uint4 whole = whole_columns<T>(sum);
  if (!valid) return;
  a.out[(row * a.group_size + head) * a.pieces_of_head + columns * 4 + quad] = whole;
  if (columns == 0 && quad == 0)
    a.lse[row * a.group_size + head] = total == 0.f ? -INFINITY : shift * a.scale + logf(total);
}

__global__ void __launch_bounds__(kThreads) join_kernel(const __grid_constant__ JoinArguments a) {
  tokens::by_type(a.element, [&](auto type) { join<decltype(type)>(a); });
}

}  // namespace

cudaError_t join_parts(const RowAttention& p, int tokens_of_batch, const SelectedPlan& plan,
                       void* workspace, int set, cudaStream_t stream) {
  const auto at = [&](size_t offset) { return static_cast<char*>(workspace) + offset; };
  JoinArguments a{};
  a.parts = reinterpret_cast<const uint4*>(at(plan.parts));
  a.part_stats = reinterpret_cast<const float2*>(at(plan.part_stats));
  a.row_counts = reinterpret_cast<const int32_t*>(at(plan.row_counts));
  a.out = static_cast<uint4*>(p.out);
  a.lse = p.lse;
  a.first_head = set / plan.chunk_sets * plan.heads_of_set;
  a.first_token = set % plan.chunk_sets * plan.tokens_of_set();
  a.tokens_of_set = plan.tokens_of_set();
  a.tokens = std::min(a.tokens_of_set, p.num_queries - a.first_token);
  a.num_queries = p.num_queries;
  a.tokens_of_batch = tokens_of_batch;
  a.num_kv_heads = p.num_kv_heads;
  a.max_tiles = plan.max_tiles_of_row;
  a.group_size = p.num_heads / p.num_kv_heads;
  a.pieces_of_head = p.v_head_dim / 8;
  a.scale = p.scale;
  a.scale_log2 = p.scale * 1.4426950408889634f;
  const int heads = std::min(plan.heads_of_set, plan.heads - a.first_head);
  a.num_pieces = int64_t{heads} * a.tokens * a.group_size * a.pieces_of_head;
  const auto blocks = static_cast<unsigned>((a.num_pieces + kThreads - 1) / kThreads);
  a.element = p.element;
  return launch(join_kernel, blocks, kThreads, 0, stream, a);
}

}  // namespace nsa::kernels::portable

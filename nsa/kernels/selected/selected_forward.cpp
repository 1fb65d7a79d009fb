// Chooses the instantiation and enqueues the steps of the selected branch's forward pass in the
// order of keys.
#include "nsa/kernels/selected/selected_forward.h"

#include <algorithm>

#include "nsa/kernels/common/alignment.h"
#include "nsa/kernels/common/size_limits.h"
#include "nsa/kernels/interval/sm90/interval_attention_launch.h"
#include "nsa/kernels/interval/tile_ranges.h"
#include "nsa/kernels/selected/selected_join.h"
#include "nsa/kernels/selected/selected_plan.h"
#include "nsa/kernels/selected/sm90/selected_dense_launch.h"
#include "nsa/kernels/selected/sm90/selected_forward_launch.h"
#include "nsa/kernels/selected/tile_index.h"

namespace nsa::kernels {
namespace {

struct ForwardInstance {
  int qk_head_dim, v_head_dim;
  Element element;
  sm90::SelectedForwardLaunch launch;
  sm90::SelectedDenseLaunch dense;
};

constexpr ForwardInstance kForwardInstances[] = {
    {64, 64, Element::kBFloat16, sm90::selected_forward_64_64_bf16,
     sm90::selected_dense_64_64_bf16},
    {64, 64, Element::kHalf, sm90::selected_forward_64_64_fp16, sm90::selected_dense_64_64_fp16},
    {128, 128, Element::kBFloat16, sm90::selected_forward_128_128_bf16,
     sm90::selected_dense_128_128_bf16},
    {128, 128, Element::kHalf, sm90::selected_forward_128_128_fp16,
     sm90::selected_dense_128_128_fp16},
    {192, 128, Element::kBFloat16, sm90::selected_forward_192_128_bf16,
     sm90::selected_dense_192_128_bf16},
    {192, 128, Element::kHalf, sm90::selected_forward_192_128_fp16,
     sm90::selected_dense_192_128_fp16},
};

static_assert(covers_head_dims(kForwardInstances, 2, /*wgmma_only=*/true));

const ForwardInstance* find_forward(const RowAttention& p) {
  for (const ForwardInstance& one : kForwardInstances)
    if (one.qk_head_dim == p.qk_head_dim && one.v_head_dim == p.v_head_dim &&
        one.element == p.element)
      return &one;
  return nullptr;
}

SelectedSizes forward_sizes(const RowAttention& p, int max_tiles_of_row) {
  return selected_sizes(p, max_tiles_of_row, SelectedPass::kForward);
}

/// The problem without its first queries; ranges, out and lse keep the strides of all.
RowAttention queries_from(RowAttention p, int first) {
  const int64_t rows = int64_t{first} * p.num_heads;
  p.num_queries -= first;
  p.first_position += first;
  p.q.data = static_cast<const char*>(p.q.data) + first * p.q.token * 2;
  p.ranges += int64_t{first} * p.num_kv_heads * p.num_ranges * 2;
  p.out = static_cast<char*>(p.out) + rows * p.v_head_dim * 2;
  p.lse += rows;
  return p;
}

/// The queries of a set with their parts.
sm90::DenseQueries queries_of_set(const RowAttention& p, const SelectedPlan& plan, void* workspace,
                                  int set, int tokens_of_batch) {
  const auto at = [&](size_t offset) { return static_cast<char*>(workspace) + offset; };
  sm90::DenseQueries q;
  q.first_head = set / plan.chunk_sets * plan.heads_of_set;
  q.heads = std::min(plan.heads_of_set, plan.heads - q.first_head);
  q.first = set % plan.chunk_sets * plan.tokens_of_set();
  q.count = std::min(plan.tokens_of_set(), p.num_queries - q.first);
  q.tokens_of_batch = tokens_of_batch;
  q.parts = {at(plan.parts), reinterpret_cast<const float2*>(at(plan.part_stats)),
             reinterpret_cast<const int32_t*>(at(plan.row_counts)), plan.max_tiles_of_row,
             plan.tokens_of_set()};
  return q;
}

/// Measured: 64 and 128 tiles of rows are faster one a CTA, 512 and 1024 tile after tile.
constexpr int64_t kManyTiles = 256;

static_assert(kDensePositions <= TileRanges::kPositions);

/// The first queries, which attend whole tiles.
cudaError_t forward_whole_tiles(const RowAttention& p, int dense, WholeTiles way,
                                cudaStream_t stream) {
  const int64_t rows = int64_t{p.batch} * dense * p.num_heads,
                tiles = rows / (64 * sm90::warpgroups_of(p.qk_head_dim));
  if (way == WholeTiles::kOneOfCta || (way == WholeTiles::kBySize && tiles < kManyTiles))
    return find_forward(p)->dense(p, {0, dense, 0, p.batch * p.num_kv_heads, p.num_queries, {}},
                                  stream);
  IntervalAttention t;
  t.q = p.q, t.k = p.k, t.v = p.v, t.out = p.out, t.lse = p.lse;
  t.batch = p.batch, t.num_queries = dense, t.num_keys = p.num_keys;
  t.num_heads = p.num_heads, t.num_kv_heads = p.num_kv_heads;
  t.qk_head_dim = p.qk_head_dim, t.v_head_dim = p.v_head_dim;
  t.first_position = p.first_position, t.scale = p.scale, t.element = p.element;
  return tile_attention_forward(t, {p.ranges, p.num_ranges, p.num_queries}, stream);
}

cudaError_t forward_by_keys(const RowAttention& all, int first, int max_tiles_of_row,
                            void* workspace, cudaStream_t stream) {
  const RowAttention p = queries_from(all, first);
  const SelectedPlan plan = plan_selected(forward_sizes(p, max_tiles_of_row));
  const ForwardInstance& one = *find_forward(p);
  const bool dense = p.block_size > 0 && p.block_size % kKeysOfTile == 0;
  cudaError_t status = portable::build_tile_index(portable::token_ranges(p, all.num_queries, dense),
                                                  plan, workspace, stream);
  for (int set = 0; status == cudaSuccess && set < plan.sets(); ++set) {
    status = one.launch(p, plan, workspace, set, stream);
    if (status != cudaSuccess) return status;
    status = dense ? one.dense(p, queries_of_set(p, plan, workspace, set, all.num_queries), stream)
                   : portable::join_parts(p, all.num_queries, plan, workspace, set, stream);
  }
  return status;
}

}  // namespace

const char* unsupported_by_keys(const RowAttention& p, int max_tiles_of_row) {
  const char* reason = unsupported_reason(p);
  if (reason != nullptr) return reason;
  if (!have_wgmma_kernels(p.qk_head_dim, p.v_head_dim)) return kSm80HeadDims;
  if (!rows_within_reach(p.q, p.num_queries, p.num_heads))
    return "rows of q more than 32 GiB apart";
  return unsupported_index(forward_sizes(p, max_tiles_of_row));
}

int dense_queries(const RowAttention& p, int max_tiles_of_row) {
  return dense_queries(forward_sizes(p, max_tiles_of_row), p.first_position, p.block_size);
}

bool prefer_by_keys(const RowAttention& p, int max_tiles_of_row) {
  return prefer_order_of_keys(forward_sizes(p, max_tiles_of_row), p.block_size) ||
         dense_queries(p, max_tiles_of_row) == p.num_queries;
}

size_t workspace_bytes(const RowAttention& p, int max_tiles_of_row, int dense) {
  RowAttention later = p;
  later.num_queries -= dense;
  if (later.batch == 0 || later.num_queries <= 0) return 0;
  return plan_selected(forward_sizes(later, max_tiles_of_row)).bytes;
}

cudaError_t selected_attention_forward(const RowAttention& p, int max_tiles_of_row, int dense,
                                       void* workspace, cudaStream_t stream, WholeTiles way) {
  if (unsupported_by_keys(p, max_tiles_of_row) != nullptr ||
      dense >
          most_dense_queries(forward_sizes(p, max_tiles_of_row), p.first_position, p.block_size))
    return cudaErrorInvalidValue;
  if (p.batch == 0 || p.num_queries == 0) return cudaSuccess;
  if (dense > 0) {
    const cudaError_t status = forward_whole_tiles(p, dense, way, stream);
    if (status != cudaSuccess || dense == p.num_queries) return status;
  }
  return forward_by_keys(p, dense, max_tiles_of_row, workspace, stream);
}

}  // namespace nsa::kernels

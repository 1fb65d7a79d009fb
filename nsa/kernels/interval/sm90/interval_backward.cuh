// The backward pass of interval attention for one set of head dims, in one launch.
#pragma once
#include <algorithm>
#include <cstdint>

#include "nsa/kernels/interval/sm90/key_gradients.cuh"
#include "nsa/kernels/interval/sm90/query_gradients.cuh"

namespace nsa::kernels::sm90 {

/// Maps for tiles of `rows` rows and `keys` keys; the rest as both kernels take it.
inline cudaError_t backward_arguments(const IntervalBackward& p, const BackwardPlan& plan, int rows,
                                      int keys, BackwardArguments& a) {
  const IntervalAttention& f = p.forward;
  a.plan = plan, a.forward = f;
  a.d_q = p.d_q, a.d_k = p.d_k, a.d_v = p.d_v;
  a.adds = p.earlier != nullptr;
  a.tiling = row_tiling(f.num_heads / f.num_kv_heads, rows);
  a.by_heads = Divisor(a.tiling.heads), a.by_parts = Divisor(a.tiling.parts);
  a.by_stride = Divisor(f.rule.stride);
  a.scale_log2 = f.scale * kLog2OfE;
  const auto map = [&](CUtensorMap& m, const Strided& x, int dim, int heads, int tokens,
                       int box_heads, int box_tokens) {
    return make_tensor_map(m, x.data, f.element == Element::kHalf, dim, heads, tokens, f.batch,
                           x.head, x.token, x.batch, box_heads, box_tokens);
  };
  const RowTiling& t = a.tiling;
  cudaError_t status =
      map(a.q_map, f.q, f.qk_head_dim, f.num_heads, f.num_queries, t.heads, t.tokens);
  if (status == cudaSuccess)
    status = map(a.d_out_map, p.d_out, f.v_head_dim, f.num_heads, f.num_queries, t.heads, t.tokens);
  if (status == cudaSuccess)
    status = map(a.k_map, f.k, f.qk_head_dim, f.num_kv_heads, f.num_keys, 1, keys);
  if (status == cudaSuccess)
    status = map(a.v_map, f.v, f.v_head_dim, f.num_kv_heads, f.num_keys, 1, keys);
  return status;
}

/// The units of d_k, d_v first, which are the longest; those of d_q fill what they leave idle.
struct BothArguments {
  BackwardArguments keys, queries;
};

template <class Keys, class Queries>
__global__ void __launch_bounds__(Keys::kThreads, 1)
    interval_backward_kernel(const __grid_constant__ BothArguments a) {
#if NSA_CODE_OF_SM90
  NSA_ALIGNED_SHARED(raw);
  auto& keys = *reinterpret_cast<typename Keys::Shared*>(raw);
  auto& queries = *reinterpret_cast<typename Queries::Shared*>(raw);
  const int unit = blockIdx.x;
  const bool of_keys = unit < a.keys.units;
  if (of_keys) {
    if (Keys::work_of(a.keys, unit).steps == 0 && a.keys.plan.num_chunks > 1) return;
    Keys::prepare(a.keys, keys);
  } else {
    Queries::prepare(a.queries, queries);
  }
  __syncthreads();
  const int warpgroup = cutlass::canonical_warp_group_idx();
  if (warpgroup == 0) {
    cutlass::arch::warpgroup_reg_dealloc<Keys::kProducerRegisters>();
    if (threadIdx.x >= 32) return;
    if (of_keys) {
      Keys::produce(a.keys, keys, Keys::work_of(a.keys, unit));
    } else {
      Queries::produce(a.queries, queries, Queries::work_of(a.queries, unit - a.keys.units));
    }
  } else {
    cutlass::arch::warpgroup_reg_alloc<Keys::kConsumerRegisters>();
    if (of_keys) {
      Keys::consume(a.keys, keys, Keys::work_of(a.keys, unit), warpgroup - 1);
    } else {
      Queries::consume(a.queries, queries, Queries::work_of(a.queries, unit - a.keys.units),
                       warpgroup - 1);
    }
  }
#endif
}

/// How many tiles of d_q a CTA computes one after the other: a CTA costs about a seventh of a tile
/// besides, but the last round of CTAs should keep most SMs busy.
inline int tiles_of_unit(int tiles, int sequences) {
  const auto cost = [&](int64_t count) {
    const int64_t units = (tiles + count - 1) / count * sequences,
                  rounds = (units + kBusySms - 1) / kBusySms;
    return rounds * (20 * count + 3) + 5 * count;
  };
  int best = 1;
  for (const int count : {2, 4, 8})
    if (cost(count) < cost(best)) best = count;
  return best;
}

/// kStages: tiles of rows in flight for d_k, d_v; BN: keys of a step for d_q; `words`: of the
/// selected branch, or null.
template <int DK, int DV, int kStages, int BN, typename T, bool kWords = false>
cudaError_t interval_backward(const IntervalBackward& p, const BackwardPlan& plan,
                              cudaStream_t stream, const TileWords& words = {}) {
  using Keys = KeyGradients<DK, DV, rows_of_key_pass(DK), kStages, T, kWords>;
  using Queries = QueryGradients<DK, DV, BN, T, kWords>;
  const IntervalAttention& f = p.forward;
  const int sequences = f.batch * f.num_kv_heads;
  BothArguments a{};
  cudaError_t status = backward_arguments(p, plan, rows_of_key_pass(DK), kKeysOfTile, a.keys);
  if (status == cudaSuccess) status = backward_arguments(p, plan, Queries::kRows, BN, a.queries);
  if (status != cudaSuccess) return status;
  a.keys.words = a.queries.words = words;
  a.keys.units = (f.num_keys + kKeysOfTile - 1) / kKeysOfTile * sequences * plan.num_chunks;
  const int tiles = Queries::tiles_of(a.queries);
  a.queries.tiles_of_unit = kWords ? 1 : tiles_of_unit(tiles, sequences);
  a.queries.units = (tiles + a.queries.tiles_of_unit - 1) / a.queries.tiles_of_unit * sequences;
  const auto kernel = interval_backward_kernel<Keys, Queries>;
  constexpr int kBytes = std::max(Keys::kSharedBytes, Queries::kSharedBytes);
  return portable::launch(kernel, unsigned(a.keys.units + a.queries.units), Keys::kThreads, kBytes,
                          stream, a);
}

}  // namespace nsa::kernels::sm90

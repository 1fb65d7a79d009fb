// Launches the two kernels of the backward pass of interval attention for one set of head dims.
#pragma once
#include "nsa/device/sm90/key_gradients.cuh"
#include "nsa/device/sm90/query_gradients.cuh"

namespace nsa::device::sm90 {

/// Maps for tiles of `rows` rows and `keys` keys; the rest as both kernels take it.
inline cudaError_t backward_arguments(const IntervalBackward& p, const BackwardPlan& plan, int rows,
                                      int keys, BackwardArguments& a) {
  const IntervalAttention& f = p.forward;
  a.plan = plan, a.forward = f;
  a.d_q = p.d_q, a.d_k = p.d_k, a.d_v = p.d_v;
  a.tiling = row_tiling(f.num_heads / f.num_kv_heads, rows);
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

template <class Kernel>
cudaError_t launch_backward(void (*kernel)(BackwardArguments), dim3 grid,
                            const BackwardArguments& a, cudaStream_t stream) {
  const cudaError_t status = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Kernel::kSharedBytes);
  if (status != cudaSuccess) return status;
  kernel<<<grid, Kernel::kThreads, Kernel::kSharedBytes, stream>>>(a);
  return cudaGetLastError();
}

/// kStages: tiles of rows in flight in the d_k, d_v kernel; BN: keys of a step of the d_q kernel.
template <int DK, int DV, int kStages, int BN, typename T>
cudaError_t interval_backward(const IntervalBackward& p, const BackwardPlan& plan,
                              cudaStream_t stream) {
  using Keys = KeyGradients<DK, DV, rows_of_key_pass(DK), kStages, T>;
  using Queries = QueryGradients<DK, DV, BN, T>;
  const IntervalAttention& f = p.forward;
  BackwardArguments a{};
  cudaError_t status = backward_arguments(p, plan, rows_of_key_pass(DK), kKeysOfTile, a);
  if (status != cudaSuccess) return status;
  const unsigned key_tiles = (f.num_keys + kKeysOfTile - 1) / kKeysOfTile;
  status = launch_backward<Keys>(
      key_gradients_kernel<Keys>,
      dim3(key_tiles * unsigned(f.batch) * unsigned(f.num_kv_heads) * unsigned(plan.num_chunks)), a,
      stream);
  if (status != cudaSuccess) return status;
  status = backward_arguments(p, plan, Queries::kRows, BN, a);
  if (status != cudaSuccess) return status;
  const unsigned row_tiles =
      (f.num_queries + a.tiling.tokens - 1) / a.tiling.tokens * a.tiling.parts;
  return launch_backward<Queries>(query_gradients_kernel<Queries>,
                                  dim3(row_tiles, f.num_kv_heads, f.batch), a, stream);
}

}  // namespace nsa::device::sm90

// The backward pass of interval attention for one set of head dims, in one launch.
#pragma once
#include "nsa/kernels/common/launch.cuh"
#include "nsa/kernels/interval/sm80/interval_backward_launch.h"
#include "nsa/kernels/interval/sm80/key_gradients.cuh"
#include "nsa/kernels/interval/sm80/query_gradients.cuh"

namespace nsa::kernels::sm80 {

/// The units of d_k, d_v first, which are the longest; those of d_q fill what they leave idle.
template <class Tiles, int kBlocksOfSm>
__global__ void __launch_bounds__(Tiles::kThreads, kBlocksOfSm)
    interval_backward_kernel(const __grid_constant__ BackwardArguments a) {
  auto& shared = *reinterpret_cast<typename Tiles::Shared*>(dynamic_shared());
  const int unit = blockIdx.x;
  if (unit < a.key_units) {
    KeyGradients<Tiles>::run(a, shared, unit);
  } else {
    QueryGradients<Tiles>::run(a, shared, unit - a.key_units);
  }
}

/// kPassing, kStages: rows of a passing tile, and how many of them fit.
template <int DK, int DV, int kPassing, int kStages, int kBlocksOfSm, typename T>
cudaError_t interval_backward(const IntervalBackward& p, const sm90::BackwardPlan& plan,
                              cudaStream_t stream) {
  using Tiles = GradientTiles<DK, DV, kPassing, kStages, T>;
  const IntervalAttention& f = p.forward;
  const int heads = f.batch * f.num_kv_heads;
  BackwardArguments a{};
  a.plan = plan, a.forward = f, a.d_out = p.d_out;
  a.d_q = p.d_q, a.d_k = p.d_k, a.d_v = p.d_v;
  a.adds = p.earlier != nullptr;
  a.group = f.num_heads / f.num_kv_heads;
  a.rows = f.num_queries * a.group;
  a.key_tiles = (f.num_keys + Tiles::kOwn - 1) / Tiles::kOwn;
  a.q_tiles = (a.rows + Tiles::kOwn - 1) / Tiles::kOwn;
  a.key_units = a.key_tiles * heads * plan.num_chunks * KeyGradients<Tiles>::kParts;
  a.by_group = Divisor(a.group), a.by_stride = Divisor(f.rule.stride);
  a.scale_log2 = f.scale * 1.4426950408889634f;
  return launch(interval_backward_kernel<Tiles, kBlocksOfSm>,
                dim3(unsigned(a.key_units + a.q_tiles * heads)), dim3(Tiles::kThreads),
                sizeof(typename Tiles::Shared), stream, a);
}

}  // namespace nsa::kernels::sm80

// What the branches read: rotated tokens and means of blocks, in one launch. Blocks of threads that
// pool come first, as they take longest; the others copy a token each.
#include "nsa/device/token_kernels.h"
#include "nsa/device/tokens/turns.cuh"
#include "nsa/device/tokens/vector.cuh"

namespace nsa::device {
namespace {

using namespace tokens;

constexpr int kThreads = 128;

/// How a pooled tensor is cut: a CTA takes `columns` vectors of `blocks` neighbouring blocks.
struct PoolCut {
  int columns, parts, blocks, runs, ctas;
};

struct Cuts {
  PoolCut pool[2];
  int pooling;  // CTAs
};

template <typename T>
__device__ void pool_blocks(const TokenSources& p, const TokenSources::Pool& of, const PoolCut& cut,
                            int index) {
  const int vectors = of.head_dim / kVector;
  const int part = index % cut.parts, run = index / cut.parts % cut.runs,
            batch = index / cut.parts / cut.runs;
  const int block = run * cut.blocks + static_cast<int>(threadIdx.x) / cut.columns;
  const int vector = part * cut.columns + static_cast<int>(threadIdx.x) % cut.columns;
  if (threadIdx.x / cut.columns >= cut.blocks || block >= p.num_blocks ||
      vector >= of.num_heads * vectors)
    return;
  const int head = vector / vectors, column = vector % vectors * kVector;
  const int first = block * p.block_stride, end = first + p.block_size;  // tokens
  const T* x = static_cast<const T*>(of.x.data) + batch * of.x.batch + head * of.x.head + column;
  float sum[kVector] = {};
#pragma unroll 8
  for (int token = first; token < end; ++token) {
    float one[kVector];
    load(one, x + token * of.x.token);
    if (of.rotated) {
      turn(one, p.turns + int64_t(token) * (of.head_dim / 2) + column / 2);
      round_to<T>(one);
    }
#pragma unroll
    for (int j = 0; j < kVector; ++j) sum[j] += one[j];
  }
#pragma unroll
  for (int j = 0; j < kVector; ++j) sum[j] /= static_cast<float>(p.block_size);
  const int64_t row = (int64_t(batch) * p.num_blocks + block) * of.num_heads + head;
  store(static_cast<T*>(of.out) + row * of.head_dim + column, sum);
}

template <typename T>
__device__ void copy_token(const TokenSources& p, int index) {
  const int token = index % p.num_tokens, batch = index / p.num_tokens;
  const float2* turns = p.turns + int64_t(token) * (p.qk_head_dim / 2);
  const int vectors = p.qk_head_dim / kVector;
  int first = 0;  // of this tensor's vectors in the row of all tensors
  for (int which = 0; which < p.num_copies; ++which) {
    const TokenSources::Copy& of = p.copy[which];
    const T* x = static_cast<const T*>(of.x.data) + batch * of.x.batch + token * of.x.token;
    T* out = static_cast<T*>(of.out) + int64_t(index) * of.num_heads * p.qk_head_dim;
    // Threads that the tensor before left idle begin here.
    for (int i = (threadIdx.x + kThreads - first % kThreads) % kThreads; i < of.num_heads * vectors;
         i += kThreads) {
      const int head = i / vectors, column = i % vectors * kVector;
      float values[kVector];
      load(values, x + head * of.x.head + column);
      turn(values, turns + column / 2);
      store(out + i * kVector, values);
    }
    first += of.num_heads * vectors;
  }
}

template <typename T>
__device__ __forceinline__ void copy_or_pool(const TokenSources& p, const Cuts& cuts) {
  int index = blockIdx.x;
  if (index >= cuts.pooling) return copy_token<T>(p, index - cuts.pooling);
  const int which = index < cuts.pool[0].ctas ? 0 : 1;
  if (which == 1) index -= cuts.pool[0].ctas;
  pool_blocks<T>(p, p.pool[which], cuts.pool[which], index);
}

__global__ void __launch_bounds__(kThreads)
    token_sources_kernel(const __grid_constant__ TokenSources p, const Cuts cuts) {
  by_type(p.element, [&](auto type) { copy_or_pool<decltype(type)>(p, cuts); });
}

PoolCut cut_of(const TokenSources& p, const TokenSources::Pool& of) {
  PoolCut cut;
  const int vectors = of.num_heads * (of.head_dim / kVector);
  cut.columns = vectors < kThreads ? vectors : kThreads;
  cut.parts = (vectors + cut.columns - 1) / cut.columns;
  cut.blocks = kThreads / cut.columns;
  cut.runs = (p.num_blocks + cut.blocks - 1) / cut.blocks;
  cut.ctas = cut.parts * cut.runs * p.batch;
  return cut;
}

bool covered(const TokenSources& p) {
  for (int i = 0; i < p.num_pools; ++i)
    if (p.pool[i].head_dim % kVector != 0 ||
        (p.pool[i].rotated && p.pool[i].head_dim != p.qk_head_dim))
      return false;
  const bool turned = p.num_copies > 0 || (p.num_pools > 0 && p.pool[0].rotated);
  return p.num_copies <= 3 && p.num_pools <= 2 && p.block_size > 0 && p.block_stride > 0 &&
         (!turned || (p.qk_head_dim % kVector == 0 && p.turns != nullptr));
}

}  // namespace

cudaError_t token_sources(const TokenSources& p, cudaStream_t stream) {
  if (!covered(p)) return cudaErrorInvalidValue;
  Cuts cuts{};
  for (int i = 0; i < p.num_pools; ++i)
    if (p.num_blocks > 0) cuts.pooling += (cuts.pool[i] = cut_of(p, p.pool[i])).ctas;
  const int64_t grid =
      cuts.pooling + (p.num_copies > 0 ? int64_t{p.batch} * p.num_tokens : int64_t{0});
  if (grid == 0) return cudaSuccess;
  token_sources_kernel<<<static_cast<unsigned>(grid), kThreads, 0, stream>>>(p, cuts);
  return cudaGetLastError();
}

}  // namespace nsa::device

// What the branches read: rotated tokens and means of blocks, in one launch. Blocks of threads that
// pool come first, as they take longest; the others copy a token each.
#include "nsa/device/token_kernels.h"
#include "nsa/device/tokens/turns.cuh"
#include "nsa/device/tokens/vector.cuh"

namespace nsa::device {
namespace {

using namespace tokens;

constexpr int kThreads = 128, kTokensOfTable = 16;

/// How a pooled tensor is cut: a CTA takes `columns` vectors of `blocks` neighbouring blocks.
struct PoolCut {
  int columns, parts, blocks, runs, ctas;
};

struct Cuts {
  PoolCut pool[2];
  int pooling;  // CTAs
};

template <typename T>
__device__ void round_to(float (&x)[kVector]) {
#pragma unroll
  for (int j = 0; j < kVector; ++j) x[j] = static_cast<float>(static_cast<T>(x[j]));
}

template <typename T>
__device__ void pool_blocks(const TokenSources& p, const TokenSources::Pool& of, const PoolCut& cut,
                            int index, double* frequencies, float2* turns) {
  const int pairs = of.head_dim / 2, vectors = of.head_dim / kVector;
  const int part = index % cut.parts, run = index / cut.parts % cut.runs,
            batch = index / cut.parts / cut.runs;
  const int first_block = run * cut.blocks, blocks = min(cut.blocks, p.num_blocks - first_block);
  const int own = threadIdx.x / cut.columns,
            vector = part * cut.columns + threadIdx.x % cut.columns;
  const bool works = own < blocks && vector < of.num_heads * vectors;
  const int head = vector / vectors, column = vector % vectors * kVector;
  const int first = first_block * p.block_stride,  // tokens
      end = first + (blocks - 1) * p.block_stride + p.block_size;
  const int own_first = first + own * p.block_stride, own_end = own_first + p.block_size;
  const T* x = static_cast<const T*>(of.x.data) + batch * of.x.batch + head * of.x.head + column;
  if (of.rotated)
    for (int i = threadIdx.x; i < pairs; i += kThreads)
      frequencies[i] = turn_frequency(p.base, i, of.head_dim);
  float sum[kVector] = {};
  const int step = of.rotated ? kTokensOfTable : end - first;
  for (int begin = first; begin < end; begin += step) {
    const int stop = min(begin + step, end);
    if (of.rotated) {
      __syncthreads();
      for (int i = threadIdx.x; i < (stop - begin) * pairs; i += kThreads)
        turns[i] = turn_of(begin + i / pairs, frequencies[i % pairs]);
      __syncthreads();
    }
    if (!works) continue;
    const int last = min(stop, own_end);
#pragma unroll 8
    for (int token = max(begin, own_first); token < last; ++token) {
      float one[kVector];
      load(one, x + token * of.x.token);
      if (of.rotated) {
        turn(one, turns + (token - begin) * pairs + column / 2);
        round_to<T>(one);
      }
#pragma unroll
      for (int j = 0; j < kVector; ++j) sum[j] += one[j];
    }
  }
  if (!works) return;
#pragma unroll
  for (int j = 0; j < kVector; ++j) sum[j] /= static_cast<float>(p.block_size);
  const int64_t block = int64_t(batch) * p.num_blocks + first_block + own;
  store(static_cast<T*>(of.out) + (block * of.num_heads + head) * of.head_dim + column, sum);
}

template <typename T>
__device__ void copy_token(const TokenSources& p, int index, float2* turns) {
  const int token = index % p.num_tokens, batch = index / p.num_tokens;
  for (int i = threadIdx.x; i < p.qk_head_dim / 2; i += kThreads)
    turns[i] = turn_of(token, turn_frequency(p.base, i, p.qk_head_dim));
  __syncthreads();
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
__device__ __forceinline__ void copy_or_pool(const TokenSources& p, const Cuts& cuts,
                                             double* shared) {
  double* frequencies = shared;
  float2* turns = reinterpret_cast<float2*>(shared + p.qk_head_dim / 2);
  int index = blockIdx.x;
  if (index >= cuts.pooling) return copy_token<T>(p, index - cuts.pooling, turns);
  const int which = index < cuts.pool[0].ctas ? 0 : 1;
  if (which == 1) index -= cuts.pool[0].ctas;
  pool_blocks<T>(p, p.pool[which], cuts.pool[which], index, frequencies, turns);
}

__global__ void __launch_bounds__(kThreads)
    token_sources_kernel(const __grid_constant__ TokenSources p, const Cuts cuts) {
  extern __shared__ double shared[];
  by_type(p.element, [&](auto type) { copy_or_pool<decltype(type)>(p, cuts, shared); });
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
         (!turned || (p.qk_head_dim % kVector == 0 && p.qk_head_dim / 2 <= kMostPairs / 2));
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
  const size_t pairs = static_cast<size_t>(p.qk_head_dim) / 2;
  const size_t shared = pairs * sizeof(double) + kTokensOfTable * pairs * sizeof(float2);
  token_sources_kernel<<<static_cast<unsigned>(grid), kThreads, shared, stream>>>(p, cuts);
  return cudaGetLastError();
}

}  // namespace nsa::device

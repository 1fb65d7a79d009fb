// What the branches read: rotated tokens and means of blocks, in one launch. Blocks of threads that
// pool come first, as they take longest; the others copy some tokens, a tensor behind the other.
#include "nsa/kernels/common/divisor.h"
#include "nsa/kernels/common/launch.cuh"
#include "nsa/kernels/common/vector.cuh"
#include "nsa/kernels/tokens/rotation.cuh"
#include "nsa/kernels/tokens/token_kernels.h"

namespace nsa::kernels {
namespace {

using namespace tokens;

constexpr int kThreads = 128;
constexpr int kInFlight = 4;        // vectors that a thread copies
constexpr int kTokensInFlight = 8;  // of a block that a thread pools

/// How a pooled tensor is cut: a CTA takes `columns` vectors of `blocks` neighbouring blocks.
struct PoolCut {
  int columns, parts, blocks, runs, ctas;
};

struct Cuts {
  PoolCut pool[2];
  int pooling;                                // CTAs
  int tokens, runs;                           // of a CTA that copies; such CTAs of a sequence
  Divisor by_runs, vectors[3], head_vectors;  // vectors of a token, of a head
};

template <typename T, bool kRotated>
__device__ __forceinline__ void pool_blocks(const TokenSources& p, const TokenSources::Pool& of,
                                            const PoolCut& cut, int index) {
  const int vectors = of.head_dim / kVector;
  const int part = index % cut.parts, run = index / cut.parts % cut.runs,
            batch = index / cut.parts / cut.runs;
  const int block = run * cut.blocks + static_cast<int>(threadIdx.x) / cut.columns;
  const int vector = part * cut.columns + static_cast<int>(threadIdx.x) % cut.columns;
  if (threadIdx.x / cut.columns >= cut.blocks || block >= p.num_blocks ||
      vector >= of.num_heads * vectors)
    return;
  const int head = vector / vectors, column = vector % vectors * kVector;
  const int64_t row = (int64_t(batch) * p.num_blocks + block) * of.num_heads + head;
  T* const out = static_cast<T*>(of.out) + row * of.head_dim + column;
  const int first = p.block_first == nullptr ? block * p.block_stride : p.block_first[block],
            end = first + p.block_size;  // tokens
  const T* x = static_cast<const T*>(of.x.data) + batch * of.x.batch + head * of.x.head + column;
  const float2* cos_sin = p.cos_sin + column / 2;
  float sum[kVector] = {};
  if (first < 0) return store(out, sum);
  for (int token = first; token < end; token += kTokensInFlight) {
    uint4 bits[kTokensInFlight];
#pragma unroll
    for (int n = 0; n < kTokensInFlight; ++n)
      bits[n] = load_bits(x + min(token + n, end - 1) * of.x.token);
#pragma unroll
    for (int n = 0; n < kTokensInFlight; ++n) {
      if (token + n >= end) break;
      float one[kVector];
      unpack<T>(one, bits[n]);
      if constexpr (kRotated) {
        rotate_pairs(one, cos_sin + int64_t(token + n) * (of.head_dim / 2));
        round_to<T>(one);
      }
#pragma unroll
      for (int j = 0; j < kVector; ++j) sum[j] += one[j];
    }
  }
#pragma unroll
  for (int j = 0; j < kVector; ++j) sum[j] /= static_cast<float>(p.block_size);
  store(out, sum);
}

template <typename T>
__device__ __forceinline__ void copy_tensor(const TokenSources& p, const Cuts& cuts, int which,
                                            int batch, int first, int tokens) {
  const TokenSources::Copy& of = p.copy[which];
  const int vectors = static_cast<int>(cuts.vectors[which].value), count = tokens * vectors;
  const T* x = static_cast<const T*>(of.x.data) + batch * of.x.batch + first * of.x.token;
  T* out = static_cast<T*>(of.out) + (int64_t(batch) * p.num_tokens + first) * vectors * kVector;
  for (int base = threadIdx.x; base < count; base += kInFlight * kThreads) {
    uint4 bits[kInFlight];
    int angle_offsets[kInFlight];
#pragma unroll
    for (int n = 0; n < kInFlight; ++n) {
      const int i = min(base + n * kThreads, count - 1);
      const int token = cuts.vectors[which].quotient(i), vector = i - token * vectors;
      const int head = cuts.head_vectors.quotient(vector),
                column = (vector - head * static_cast<int>(cuts.head_vectors.value)) * kVector;
      bits[n] = load_bits(x + token * of.x.token + head * of.x.head + column);
      angle_offsets[n] = token * (p.qk_head_dim / 2) + column / 2;
    }
#pragma unroll
    for (int n = 0; n < kInFlight; ++n) {
      const int i = base + n * kThreads;
      if (i >= count) break;
      float values[kVector];
      unpack<T>(values, bits[n]);
      rotate_pairs(values, p.cos_sin + int64_t(first) * (p.qk_head_dim / 2) + angle_offsets[n]);
      store(out + i * kVector, values);
    }
  }
}

template <typename T>
__device__ __forceinline__ void copy_or_pool(const TokenSources& p, const Cuts& cuts) {
  int index = blockIdx.x;
  if (index < cuts.pooling) {
    const int which = index < cuts.pool[0].ctas ? 0 : 1;
    if (which == 1) index -= cuts.pool[0].ctas;
    const TokenSources::Pool& of = p.pool[which];
    return of.rotated ? pool_blocks<T, true>(p, of, cuts.pool[which], index)
                      : pool_blocks<T, false>(p, of, cuts.pool[which], index);
  }
  index -= cuts.pooling;
  const int batch = cuts.by_runs.quotient(index), first = (index - batch * cuts.runs) * cuts.tokens;
  for (int which = 0; which < p.num_copies; ++which)
    copy_tensor<T>(p, cuts, which, batch, first, min(cuts.tokens, p.num_tokens - first));
}

__global__ void __launch_bounds__(kThreads)
    token_sources_kernel(const __grid_constant__ TokenSources p,
                         const __grid_constant__ Cuts cuts) {
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

/// So many tokens a CTA that tensors of few heads keep it busy, too.
void cut_copies(const TokenSources& p, Cuts& cuts) {
  constexpr int kVectors = 2048, kMostTokens = 16;
  cuts.head_vectors = Divisor(p.qk_head_dim / kVector);
  int vectors = 0;
  for (int i = 0; i < p.num_copies; ++i) {
    const int of_token = p.copy[i].num_heads * (p.qk_head_dim / kVector);
    cuts.vectors[i] = Divisor(of_token);
    vectors += of_token;
  }
  cuts.tokens = 1;
  while (cuts.tokens < kMostTokens && 2 * cuts.tokens * vectors <= kVectors) cuts.tokens *= 2;
  cuts.runs = (p.num_tokens + cuts.tokens - 1) / cuts.tokens;
  cuts.by_runs = Divisor(cuts.runs);
}

bool covered(const TokenSources& p) {
  if (p.num_copies > 3 || p.num_pools > 2 || p.block_size < 1 || p.block_stride < 1) return false;
  if (p.block_first != nullptr && p.batch != 1) return false;
  bool turned = p.num_copies > 0;
  for (int i = 0; i < p.num_pools; ++i) {
    const TokenSources::Pool& of = p.pool[i];
    if (of.head_dim % kVector != 0 || (of.rotated && of.head_dim != p.qk_head_dim)) return false;
    turned = turned || of.rotated;
  }
  return !turned || (p.qk_head_dim % kVector == 0 && p.cos_sin != nullptr);
}

}  // namespace

cudaError_t token_sources(const TokenSources& p, cudaStream_t stream) {
  if (p.batch == 0 || p.num_tokens == 0) return cudaSuccess;
  if (!covered(p)) return cudaErrorInvalidValue;
  Cuts cuts{};
  for (int i = 0; i < p.num_pools; ++i)
    if (p.num_blocks > 0) cuts.pooling += (cuts.pool[i] = cut_of(p, p.pool[i])).ctas;
  if (p.num_copies > 0) cut_copies(p, cuts);
  const int64_t grid = cuts.pooling + int64_t{p.batch} * cuts.runs;
  if (grid == 0) return cudaSuccess;
  return portable::launch(token_sources_kernel, static_cast<unsigned>(grid), kThreads, 0, stream, p,
                          cuts);
}

}  // namespace nsa::kernels

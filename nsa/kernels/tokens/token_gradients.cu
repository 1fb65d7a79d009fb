// Gradients of the token tensors from those of the branches: a block of threads some tokens of one
// tensor, so that those of few heads do not wait behind the others.
#include "nsa/kernels/common/divisor.h"
#include "nsa/kernels/common/launch.cuh"
#include "nsa/kernels/common/vector.cuh"
#include "nsa/kernels/tokens/rotation.cuh"
#include "nsa/kernels/tokens/token_kernels.h"

namespace nsa::kernels {
namespace {

using namespace tokens;

constexpr int kThreads = 128;
constexpr int kTerms = 4;
constexpr int kInFlight = 2;  // vectors of a thread

/// How the work is cut; a vector is eight columns.
struct Cut {
  int tokens[TokenGradients::kMost];            // of a block of threads
  int first_block[TokenGradients::kMost];       // of a tensor
  Divisor vectors[TokenGradients::kMost];       // of a token
  Divisor head_vectors[TokenGradients::kMost];  // of a head
  Divisor block_stride;
};

/// Tokens of a sequence whose gradient of a tensor is asked for.
__host__ __device__ int tokens_of(const TokenGradients& p, int which) {
  return p.of[which].tokens < 0 ? p.num_tokens : p.of[which].tokens;
}

template <typename T>
__device__ void add(float (&sum)[kVector], const uint4& bits) {
  float one[kVector];
  unpack<T>(one, bits);
#pragma unroll
  for (int j = 0; j < kVector; ++j) sum[j] += one[j];
}

/// The mean's gradient: the blocks a token lies in, none behind the last whole block.
template <typename T>
__device__ void add_blocks(float (&sum)[kVector], const TokenGradients& p,
                           const TokenGradients::Of& of, const Divisor& stride, int batch,
                           int token, int column) {
  const int start = p.start == nullptr ? 0 : p.start[token], row = stride.quotient(start);
  const int before = token - start - p.block_size + 1;  // a block starts behind it
  const int first = row + (before <= 0 ? 0 : stride.quotient(before + p.block_stride - 1));
  const int last = min(row + stride.quotient(token - start), p.num_blocks - 1),
            width = of.num_heads * of.head_dim;
  float blocks[kVector] = {};
  for (int block = first; block <= last; ++block) {
    // Behind the last block of a document lie rows of none or of the next one.
    if (p.start != nullptr && p.block_first[block] != start + (block - row) * p.block_stride) break;
    add<T>(blocks, load_bits(static_cast<const T*>(of.blocks) +
                             (int64_t(batch) * p.num_blocks + block) * width + column));
  }
  const float size = static_cast<float>(p.block_size);
#pragma unroll
  for (int j = 0; j < kVector; ++j) sum[j] += blocks[j] / size;
}

/// Gradients of one tensor for tokens [first, first + tokens) of a sequence.
template <typename T>
__device__ __forceinline__ void join_tensor(const TokenGradients& p, const Cut& cut, int which,
                                            int batch, int first, int tokens) {
  const TokenGradients::Of& of = p.of[which];
  const int width = of.num_heads * of.head_dim, count = tokens * (width / kVector);
  const int64_t row = int64_t(batch) * p.num_tokens + first;
  const int64_t stride = of.out_stride > 0 ? of.out_stride : width;
  for (int base = threadIdx.x; base < count; base += kInFlight * kThreads) {
    uint4 bits[kInFlight][kTerms];
    float2 cos_sin[kInFlight][kVector / 2] = {};
#pragma unroll
    for (int n = 0; n < kInFlight; ++n) {
      const int i = min(base + n * kThreads, count - 1);
      if (of.rotated) {
        const int token = cut.vectors[which].quotient(i);
        const int vector = i - token * static_cast<int>(cut.vectors[which].value);
        load_cos_sin(cos_sin[n], p.cos_sin + int64_t(first + token) * (p.qk_head_dim / 2) +
                                     cut.head_vectors[which].remainder(vector) * (kVector / 2));
      }
#pragma unroll
      for (int term = 0; term < kTerms; ++term)
        if (of.term[term] != nullptr)
          bits[n][term] =
              load_bits(static_cast<const T*>(of.term[term]) + row * width + i * kVector);
    }
#pragma unroll
    for (int n = 0; n < kInFlight; ++n) {
      const int i = base + n * kThreads;
      if (i >= count) break;
      const int token = cut.vectors[which].quotient(i);
      const int vector = i - token * static_cast<int>(cut.vectors[which].value);
      float sum[kVector] = {};
#pragma unroll
      for (int term = 0; term < kTerms; ++term)
        if (of.term[term] != nullptr) add<T>(sum, bits[n][term]);
      if (of.blocks != nullptr)
        add_blocks<T>(sum, p, of, cut.block_stride, batch, first + token, vector * kVector);
      if (of.rotated) rotate_by(sum, cos_sin[n], /*inverse=*/true);
      store(static_cast<T*>(of.out) + (row + token) * stride + vector * kVector, sum);
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    token_gradients_kernel(const __grid_constant__ TokenGradients p,
                           const __grid_constant__ Cut cut) {
  int which = 0;
  while (which + 1 < p.count && static_cast<int>(blockIdx.x) >= cut.first_block[which + 1]) ++which;
  const int first = (static_cast<int>(blockIdx.x) - cut.first_block[which]) * cut.tokens[which];
  const int tokens = min(cut.tokens[which], tokens_of(p, which) - first);
  by_type(p.element, [&](auto type) {
    join_tensor<decltype(type)>(p, cut, which, blockIdx.y, first, tokens);
  });
}

/// So many tokens a block of threads that each thread has some vectors.
Cut cut_of(const TokenGradients& p, int& blocks) {
  constexpr int kVectorsOfBlock = 2 * kInFlight * kThreads;
  Cut cut;
  cut.block_stride = Divisor(p.block_stride);
  blocks = 0;
  for (int i = 0; i < p.count; ++i) {
    const int of_head = p.of[i].head_dim / kVector, of_token = p.of[i].num_heads * of_head;
    cut.vectors[i] = Divisor(of_token), cut.head_vectors[i] = Divisor(of_head);
    cut.tokens[i] = of_token < kVectorsOfBlock ? kVectorsOfBlock / of_token : 1;
    cut.first_block[i] = blocks;
    blocks += (tokens_of(p, i) + cut.tokens[i] - 1) / cut.tokens[i];
  }
  return cut;
}

}  // namespace

cudaError_t token_gradients(const TokenGradients& p, cudaStream_t stream) {
  if (p.batch == 0 || p.num_tokens == 0 || p.count == 0) return cudaSuccess;
  if (p.count > TokenGradients::kMost || p.block_size < 1 || p.block_stride < 1)
    return cudaErrorInvalidValue;
  if ((p.start == nullptr) != (p.block_first == nullptr) || (p.start != nullptr && p.batch != 1))
    return cudaErrorInvalidValue;
  bool rotates = false;
  for (int i = 0; i < p.count; ++i) {
    if (p.of[i].head_dim % kVector != 0 || p.of[i].out_stride % kVector != 0)
      return cudaErrorInvalidValue;
    if (p.of[i].rotated && p.of[i].head_dim != p.qk_head_dim) return cudaErrorInvalidValue;
    if (p.of[i].tokens > p.num_tokens) return cudaErrorInvalidValue;
    rotates = rotates || p.of[i].rotated;
  }
  if (rotates && p.cos_sin == nullptr) return cudaErrorInvalidValue;
  int blocks = 0;
  const Cut cut = cut_of(p, blocks);
  if (blocks == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(blocks), p.batch);
  return portable::launch(token_gradients_kernel, grid, kThreads, 0, stream, p, cut);
}

}  // namespace nsa::kernels

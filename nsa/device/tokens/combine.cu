// Gated sum of the branches, forward and backward.
#include "nsa/device/token_kernels.h"
#include "nsa/device/tokens/vector.cuh"

namespace nsa::device {
namespace {

using namespace tokens;

constexpr int kThreads = 128;

template <typename T>
__device__ void load_logits(const Combine& p, int64_t triple, float (&logits)[3]) {
#pragma unroll
  for (int i = 0; i < 3; ++i)
    logits[i] = p.float_logits
                    ? static_cast<const float*>(p.logits)[triple * 3 + i]
                    : static_cast<float>(static_cast<const T*>(p.logits)[triple * 3 + i]);
}

__device__ void activate(Activation activation, float (&x)[3]) {
  if (activation == Activation::kSigmoid) {
#pragma unroll
    for (int i = 0; i < 3; ++i) x[i] = 1.f / (1.f + expf(-x[i]));
  } else if (activation == Activation::kSoftmax) {
    // NaN beside a larger number must not vanish: it does not in the sum.
    const float largest = fmaxf(x[0], fmaxf(x[1], x[2]));
#pragma unroll
    for (int i = 0; i < 3; ++i) x[i] = expf(x[i] - largest);
    // The order of at::softmax over three, so that gate_activate has the same bits.
    const float sum = (x[0] + x[2]) + x[1];
#pragma unroll
    for (int i = 0; i < 3; ++i) x[i] /= sum;
  }
}

/// Gradients of logits from those of the gates, in place.
__device__ void differentiate(Activation activation, const float (&gate)[3], float (&d)[3]) {
  if (activation == Activation::kSigmoid) {
#pragma unroll
    for (int i = 0; i < 3; ++i) d[i] *= gate[i] * (1.f - gate[i]);
  } else if (activation == Activation::kSoftmax) {
    const float mean = gate[0] * d[0] + gate[1] * d[1] + gate[2] * d[2];
#pragma unroll
    for (int i = 0; i < 3; ++i) d[i] = gate[i] * (d[i] - mean);
  }
}

template <typename T>
__device__ __forceinline__ void add_branches(const Combine& p) {
  const int vectors = p.head_dim / kVector;
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x, row = i / vectors;
  if (row >= p.rows) return;
  const int64_t triple = row / p.heads_per_gate, at = row * p.head_dim + i % vectors * kVector;
  float gate[3], one[3][kVector], sum[kVector] = {};
#pragma unroll
  for (int branch = 0; branch < 3; ++branch)
    load(one[branch], static_cast<const T*>(p.branch[branch]) + at);
  load_logits<T>(p, triple, gate);
  activate(p.activation, gate);
#pragma unroll
  for (int branch = 0; branch < 3; ++branch)
#pragma unroll
    for (int j = 0; j < kVector; ++j) sum[j] += gate[branch] * one[branch][j];
  store(static_cast<T*>(p.out) + at, sum);
  if (p.gates == nullptr || i % vectors != 0 || row % p.heads_per_gate != 0) return;
#pragma unroll
  for (int branch = 0; branch < 3; ++branch) p.gates[triple * 3 + branch] = gate[branch];
}

/// log2 of a gate; one that is 0 leaves nothing of any probability.
__device__ float log2_of_gate(float gate) { return gate == 0.f ? -160.f : log2f(gate); }

/// Where the rows of one gate triple stand, which are of one token.
struct Place {
  int batch = 0, position = 0, first_head = 0, group = 1;

  __device__ Place(const Combine& p, int64_t triple) {
    if (p.num_tokens == 0) return;                       // no statistics are wanted
    const int triples = p.num_heads / p.heads_per_gate;  // of a token
    const int64_t token = triple / triples;
    first_head = static_cast<int>(triple - token * triples) * p.heads_per_gate;
    batch = static_cast<int>(token / p.num_tokens);
    position = static_cast<int>(token - int64_t(batch) * p.num_tokens);
    group = p.num_heads / p.num_kv_heads;
  }
  /// In the order [B, Hkv, S, G].
  __device__ int64_t by_kv_head(const Combine& p, int head_of_triple) const {
    const int head = first_head + head_of_triple, kv_head = head / group;
    return ((int64_t(batch) * p.num_kv_heads + kv_head) * p.num_tokens + position) * group +
           (head - kv_head * group);
  }
};

/// What the branch's kernels read of one row, which stands at `place` there.
__device__ void store_statistics(const GatedRows& to, int64_t row, int64_t place, float gate,
                                 float delta, bool finite) {
  constexpr float kLog2e = 1.4426950408889634f;
  const float lse = to.lse[row];
  float shifted = lse * kLog2e - log2_of_gate(gate);
  if (to.marks_bad_rows) {
    if (!finite || !isfinite(lse)) shifted = NAN;
  } else if (lse == -INFINITY) {
    shifted = INFINITY, delta = 0.f;
  }
  to.shifted_lse[place * to.stride] = shifted;
  to.delta[place * to.stride] = delta;
}

/// `lanes` (a power of two) of a warp take the rows of one gate triple, one row behind the other:
/// their sum has one order.
template <typename T>
__device__ __forceinline__ void differentiate(const Combine& p, int lanes) {
  if (p.flags != nullptr && blockIdx.x == 0 && threadIdx.x < 3) p.flags[threadIdx.x] = 0;
  const bool statistics = p.d_branch[0] == nullptr;
  const int lane = threadIdx.x % lanes;
  const int64_t triple = int64_t(blockIdx.x) * (kThreads / lanes) + threadIdx.x / lanes;
  const bool exists = triple * p.heads_per_gate < p.rows;
  float gate[3], d_gate[3] = {};
  load_logits<T>(p, exists ? triple : 0, gate);
  activate(p.activation, gate);
  const Place place(p, exists ? triple : 0);
#pragma unroll 2
  for (int head = 0; head < p.heads_per_gate; ++head) {
    const int64_t row = (exists ? triple : 0) * p.heads_per_gate + head;
    float delta[3] = {};
    bool finite = true;
    for (int column = lane * kVector; column < p.head_dim; column += lanes * kVector) {
      const int64_t at = row * p.head_dim + column;
      float d_out[kVector], one[3][kVector];
      load(d_out, static_cast<const T*>(p.d_out) + at);
#pragma unroll
      for (int branch = 0; branch < 3; ++branch)
        load(one[branch], static_cast<const T*>(p.branch[branch]) + at);
#pragma unroll
      for (int branch = 0; branch < 3; ++branch) {
        float scaled[kVector];
#pragma unroll
        for (int j = 0; j < kVector; ++j) {
          delta[branch] += d_out[j] * one[branch][j];
          scaled[j] = gate[branch] * d_out[j];
          finite = finite && isfinite(d_out[j]);
        }
        if (!statistics && exists) store(static_cast<T*>(p.d_branch[branch]) + at, scaled);
      }
    }
#pragma unroll
    for (int branch = 0; branch < 3; ++branch) {
      for (int step = lanes / 2; step > 0; step /= 2)
        delta[branch] += __shfl_xor_sync(~0u, delta[branch], step);
      d_gate[branch] += delta[branch];
    }
    if (!statistics) continue;
    for (int step = lanes / 2; step > 0; step /= 2)
      finite &= static_cast<bool>(__shfl_xor_sync(~0u, static_cast<int>(finite), step));
    if (!exists) continue;
    const int64_t by_kv_head = place.by_kv_head(p, head);
#pragma unroll
    for (int branch = 0; branch < 3; ++branch)
      if (lane == branch % lanes)
        store_statistics(p.gated[branch], row, p.gated[branch].by_kv_head ? by_kv_head : row,
                         gate[branch], delta[branch], finite);
  }
  differentiate(p.activation, gate, d_gate);
  if (!exists || lane != 0) return;
#pragma unroll
  for (int branch = 0; branch < 3; ++branch) {
    if (p.float_logits) {
      static_cast<float*>(p.d_logits)[triple * 3 + branch] = d_gate[branch];
    } else {
      static_cast<T*>(p.d_logits)[triple * 3 + branch] = static_cast<T>(d_gate[branch]);
    }
  }
}

/// Forward with lanes 0.
__global__ void __launch_bounds__(kThreads)
    combine_kernel(const __grid_constant__ Combine p, int lanes) {
  by_type(p.element, [&](auto type) {
    if (lanes == 0) {
      add_branches<decltype(type)>(p);
    } else {
      differentiate<decltype(type)>(p, lanes);
    }
  });
}

bool covered(const Combine& p) {
  return p.head_dim % kVector == 0 && p.heads_per_gate > 0 && p.rows % p.heads_per_gate == 0;
}

unsigned blocks(int64_t items, int per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

}  // namespace

cudaError_t combine_forward(const Combine& p, cudaStream_t stream) {
  if (!covered(p)) return cudaErrorInvalidValue;
  if (p.rows == 0) return cudaSuccess;
  const unsigned grid = blocks(p.rows * (p.head_dim / kVector), kThreads);
  combine_kernel<<<grid, kThreads, 0, stream>>>(p, /*lanes=*/0);
  return cudaGetLastError();
}

cudaError_t combine_backward(const Combine& p, cudaStream_t stream) {
  const bool statistics = p.d_branch[0] == nullptr;
  if (!covered(p) || (statistics && p.activation == Activation::kNone))
    return cudaErrorInvalidValue;
  if (p.rows == 0) return cudaSuccess;
  int lanes = 1;
  while (lanes < 32 && lanes * kVector < p.head_dim) lanes *= 2;
  const unsigned grid = blocks(p.rows / p.heads_per_gate, kThreads / lanes);
  combine_kernel<<<grid, kThreads, 0, stream>>>(p, lanes);
  return cudaGetLastError();
}

}  // namespace nsa::device

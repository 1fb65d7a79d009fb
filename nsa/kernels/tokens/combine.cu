// Gated sum of the branches, forward and backward. `lanes` threads, a power of two, take a row,
// eight columns at a time; what depends on a row alone is computed once a row.
#include "nsa/kernels/common/divisor.h"
#include "nsa/kernels/common/launch.cuh"
#include "nsa/kernels/common/vector.cuh"
#include "nsa/kernels/tokens/token_kernels.h"

namespace nsa::kernels {
namespace {

using namespace tokens;

constexpr int kThreads = 128;
constexpr int kRowsInFlight = 4;  // backward
constexpr int kForwardRows = 2;
constexpr int kForwardCtas = 10;  // of a multiprocessor at once

/// How rows are cut, and divisions by what is known at launch.
struct Cut {
  int log_lanes = 0;
  Divisor heads_per_gate, num_heads, num_tokens, group;
};
enum class Pass { kForward, kBranches, kStatistics };

template <typename T>
__device__ void load_logits(const Combine& p, int triple, float (&logits)[3]) {
#pragma unroll
  for (int i = 0; i < 3; ++i)
    logits[i] = p.float_logits
                    ? static_cast<const float*>(p.logits)[int64_t(triple) * 3 + i]
                    : static_cast<float>(static_cast<const T*>(p.logits)[int64_t(triple) * 3 + i]);
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

/// The branch whose row is not kept where two are. A sum d_out * o that is made of the output has
/// the error of its rounding, which weighs most in rows of few keys, where outputs are large: those
/// without a compressed key drop that branch, whose sum is 0. Else the largest gate divides.
__device__ int dropped_of(const float (&logits)[3], float lse_cmp) {
  if (lse_cmp == -INFINITY) return 0;
  int branch = 1;
  float largest = logits[1];
  if (logits[0] > largest) branch = 0, largest = logits[0];
  return logits[2] > largest ? 2 : branch;
}

/// Sums d_out * o_branch from those that stand in the places of the branches (Combine::keeps_two):
/// the dropped one is what the others leave of that of the output; `sums[3]` where it has no key.
__device__ void restore_sums(int dropped, bool no_key, const float (&gate)[3], float* sums) {
  float rest = sums[1];
#pragma unroll
  for (int branch = 0; branch < 3; branch += 2)
    if (branch == dropped) sums[1] = sums[branch];
#pragma unroll
  for (int branch = 0; branch < 3; ++branch)
    if (branch != dropped) rest -= gate[branch] * sums[branch];
#pragma unroll
  for (int branch = 0; branch < 3; ++branch)
    if (branch == dropped)
      sums[branch] = no_key ? sums[3] : gate[branch] == 0.f ? 0.f : rest / gate[branch];
}

template <typename T>
__device__ uint4 load_at(const void* x, int row, int head_dim, int column) {
  return load_bits(static_cast<const T*>(x) + int64_t(row) * head_dim + column);
}

template <typename T>
__device__ __forceinline__ void add_branches(const Combine& p, const Cut& cut) {
  const int lanes = 1 << cut.log_lanes, slots = kThreads >> cut.log_lanes;
  const int lane = threadIdx.x & (lanes - 1), rows = static_cast<int>(p.rows);
  const int first = blockIdx.x * (slots * kForwardRows) + (threadIdx.x >> cut.log_lanes);
  for (int column = lane * kVector; column < p.head_dim; column += lanes * kVector) {
    uint4 bits[kForwardRows][3];
#pragma unroll
    for (int i = 0; i < kForwardRows; ++i)
#pragma unroll
      for (int branch = 0; branch < 3; ++branch)
        bits[i][branch] =
            load_at<T>(p.branch[branch], min(first + i * slots, rows - 1), p.head_dim, column);
#pragma unroll
    for (int i = 0; i < kForwardRows; ++i) {
      const int row = first + i * slots;
      if (row >= rows) break;
      const int triple = cut.heads_per_gate.quotient(row);
      float gate[3], sum[kVector] = {};
      load_logits<T>(p, triple, gate);
      const int dropped = p.keeps_two ? dropped_of(gate, p.lse_cmp[row]) : 1;
      if (dropped != 1)
        *reinterpret_cast<uint4*>(static_cast<T*>(const_cast<void*>(p.branch[dropped])) +
                                  int64_t(row) * p.head_dim + column) = bits[i][1];
      activate(p.activation, gate);
#pragma unroll
      for (int branch = 0; branch < 3; ++branch) {
        float one[kVector];
        unpack<T>(one, bits[i][branch]);
#pragma unroll
        for (int j = 0; j < kVector; ++j) sum[j] += gate[branch] * one[j];
      }
      store(static_cast<T*>(p.out) + int64_t(row) * p.head_dim + column, sum);
      if (p.gates == nullptr || column != 0 || row != triple * p.heads_per_gate) continue;
#pragma unroll
      for (int branch = 0; branch < 3; ++branch)
        p.gates[int64_t(triple) * 3 + branch] = gate[branch];
    }
  }
}

/// log2 of a gate; one that is 0 leaves nothing of any probability.
__device__ float log2_of_gate(float gate) { return gate == 0.f ? -160.f : log2f(gate); }

/// What the branch's kernels read of one row, which stands at `place` there.
__device__ void store_statistics(const GatedRows& to, int64_t place, float lse, float gate,
                                 float delta, bool finite) {
  constexpr float kLog2e = 1.4426950408889634f;
  float shifted = lse * kLog2e - log2_of_gate(gate);
  if (to.marks_bad_rows) {
    if (!finite || !isfinite(lse)) shifted = NAN;
  } else if (lse == -INFINITY) {
    shifted = INFINITY, delta = 0.f;
  }
  to.shifted_lse[place * to.stride] = shifted;
  to.delta[place * to.stride] = delta;
}

/// The place of a row of [B, S, Hq] in the order [B, Hkv, S, G].
__device__ int64_t place_by_kv_head(const Combine& p, const Cut& cut, int row) {
  const int token = cut.num_heads.quotient(row), head = row - token * p.num_heads;
  const int batch = cut.num_tokens.quotient(token), kv_head = cut.group.quotient(head);
  const int group = static_cast<int>(cut.group.value);
  return ((int64_t(batch) * p.num_kv_heads + kv_head) * p.num_tokens + token -
          batch * p.num_tokens) *
             group +
         head - kv_head * group;
}

template <typename T>
__device__ void store_logits(const Combine& p, int triple, const float (&gate)[3],
                             float (&d_gate)[3]) {
  differentiate(p.activation, gate, d_gate);
#pragma unroll
  for (int branch = 0; branch < 3; ++branch) {
    const int64_t at = int64_t(triple) * 3 + branch;
    if (p.float_logits) {
      static_cast<float*>(p.d_logits)[at] = d_gate[branch];
    } else {
      static_cast<T*>(p.d_logits)[at] = static_cast<T>(d_gate[branch]);
    }
  }
}

__device__ float sum_of_lanes(float x, int lanes) {
  for (int step = lanes / 2; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

/// Gradients of the branches: `lanes` lanes of a warp take the rows of one gate triple, one row
/// behind the other.
template <typename T>
__device__ __forceinline__ void scale_by_gates(const Combine& p, const Cut& cut) {
  const int lanes = 1 << cut.log_lanes, lane = threadIdx.x & (lanes - 1);
  const int index =
      blockIdx.x * (kThreads >> cut.log_lanes) + static_cast<int>(threadIdx.x >> cut.log_lanes);
  const bool exists = int64_t(index) * p.heads_per_gate < p.rows;
  const int triple = exists ? index : 0;
  float gate[3], d_gate[3] = {};
  load_logits<T>(p, triple, gate);
  activate(p.activation, gate);
#pragma unroll 2
  for (int head = 0; head < p.heads_per_gate; ++head) {
    const int row = triple * p.heads_per_gate + head;
    float delta[3] = {};
    for (int column = lane * kVector; column < p.head_dim; column += lanes * kVector) {
      float d_out[kVector];
      unpack<T>(d_out, load_at<T>(p.d_out, row, p.head_dim, column));
#pragma unroll
      for (int branch = 0; branch < 3; ++branch) {
        float one[kVector], scaled[kVector];
        unpack<T>(one, load_at<T>(p.branch[branch], row, p.head_dim, column));
#pragma unroll
        for (int j = 0; j < kVector; ++j) {
          delta[branch] += d_out[j] * one[j];
          scaled[j] = gate[branch] * d_out[j];
        }
        if (exists)
          store(static_cast<T*>(p.d_branch[branch]) + int64_t(row) * p.head_dim + column, scaled);
      }
    }
#pragma unroll
    for (int branch = 0; branch < 3; ++branch) d_gate[branch] += sum_of_lanes(delta[branch], lanes);
  }
  if (exists && lane == 0) store_logits<T>(p, triple, gate, d_gate);
}

constexpr int kRowSums = 4;  ///< d_out * o_branch of three branches, d_out * 0

/// This lane's share of the sums of a row; of one that does not exist nothing is read.
template <typename T>
__device__ void add_row(const Combine& p, int lanes, int lane, int row, bool exists,
                        float (&sums)[kRowSums]) {
  for (int column = lane * kVector; column < p.head_dim; column += lanes * kVector) {
    uint4 bits[3] = {}, d_out_bits = {};
    if (exists) {
      d_out_bits = load_at<T>(p.d_out, row, p.head_dim, column);
#pragma unroll
      for (int branch = 0; branch < 3; ++branch)
        bits[branch] = load_at<T>(p.branch[branch], row, p.head_dim, column);
    }
    float d_out[kVector];
    unpack<T>(d_out, d_out_bits);
#pragma unroll
    for (int j = 0; j < kVector; ++j) sums[3] += d_out[j] * 0.f;  // 0, or NaN
#pragma unroll
    for (int branch = 0; branch < 3; ++branch) {
      float one[kVector];
      unpack<T>(one, bits[branch]);
#pragma unroll
      for (int j = 0; j < kVector; ++j) sums[branch] += d_out[j] * one[j];
    }
  }
}

/// Sums of four rows over `lanes` >= 4 lanes: each quarter of them gets those of one row.
__device__ void sum_quarters(float (&sums)[kRowsInFlight][kRowSums], int lanes, int lane,
                             float (&own)[kRowSums]) {
  const bool high = lane & (lanes / 2), odd = lane & (lanes / 4);
#pragma unroll
  for (int i = 0; i < kRowSums; ++i) {
    float half[2];
#pragma unroll
    for (int r = 0; r < 2; ++r)
      half[r] = (high ? sums[r + 2][i] : sums[r][i]) +
                __shfl_xor_sync(~0u, high ? sums[r][i] : sums[r + 2][i], lanes / 2);
    const float quarter =
        (odd ? half[1] : half[0]) + __shfl_xor_sync(~0u, odd ? half[0] : half[1], lanes / 4);
    own[i] = sum_of_lanes(quarter, lanes / 4);
  }
}

/// Row statistics instead: `lanes` lanes take the rows of one gate triple, or as many rows as they
/// are where each row has its own gates; in the end a lane holds the sums of one row.
template <typename T>
__device__ __forceinline__ void make_statistics(const Combine& p, const Cut& cut) {
  if (p.flags != nullptr && blockIdx.x == 0 && threadIdx.x < 3) p.flags[threadIdx.x] = 0;
  const int lanes = 1 << cut.log_lanes, lane = threadIdx.x & (lanes - 1), quarter = lanes / 4;
  const int index =
      blockIdx.x * (kThreads >> cut.log_lanes) + static_cast<int>(threadIdx.x >> cut.log_lanes);
  const bool shared = p.heads_per_gate > 1;
  const int count = shared ? p.heads_per_gate : lanes, first = index * count;
  const int end = min(first + count, static_cast<int>(p.rows));  // at or below first: no rows
  float gate[3], d_gate[3] = {};
  for (int batch = first; batch < first + count; batch += lanes) {
    const int row = batch + lane;  // this lane's
    float own[kRowSums] = {}, lse[3] = {};
    if (row < end) {  // asked for ahead of all stores, which might change them
      load_logits<T>(p, cut.heads_per_gate.quotient(row), gate);
#pragma unroll
      for (int branch = 0; branch < 3; ++branch) lse[branch] = p.gated[branch].lse[row];
    }
    for (int i = 0; i < quarter; ++i) {
      float sums[kRowsInFlight][kRowSums] = {}, found[kRowSums];
#pragma unroll
      for (int r = 0; r < kRowsInFlight; ++r) {
        const int other = batch + r * quarter + i;
        add_row<T>(p, lanes, lane, other, other < end, sums[r]);
      }
      sum_quarters(sums, lanes, lane, found);
#pragma unroll
      for (int j = 0; j < kRowSums; ++j)
        if (i == (lane & (quarter - 1))) own[j] = found[j];
    }
    if (row >= end) continue;
    const int dropped = dropped_of(gate, lse[0]);
    activate(p.activation, gate);
    if (p.keeps_two) restore_sums(dropped, lse[0] == -INFINITY, gate, own);
    const int64_t by_kv_head = place_by_kv_head(p, cut, row);
#pragma unroll
    for (int branch = 0; branch < 3; ++branch) {
      store_statistics(p.gated[branch], p.gated[branch].by_kv_head ? by_kv_head : row, lse[branch],
                       gate[branch], own[branch], own[3] == 0.f);
      d_gate[branch] += own[branch];
    }
  }
  if (shared) {
#pragma unroll
    for (int branch = 0; branch < 3; ++branch) d_gate[branch] = sum_of_lanes(d_gate[branch], lanes);
    if (first < end && lane == 0) store_logits<T>(p, index, gate, d_gate);
  } else if (first + lane < end) {
    store_logits<T>(p, first + lane, gate, d_gate);
  }
}

/// A kernel by itself: the backward passes take more registers, and bandwidth needs many threads.
__global__ void __launch_bounds__(kThreads, kForwardCtas)
    combine_kernel(const __grid_constant__ Combine p, const __grid_constant__ Cut cut) {
  by_type(p.element, [&](auto type) { add_branches<decltype(type)>(p, cut); });
}

__global__ void __launch_bounds__(kThreads)
    combine_backward_kernel(const __grid_constant__ Combine p, const __grid_constant__ Cut cut,
                            Pass pass) {
  by_type(p.element, [&](auto type) {
    using T = decltype(type);
    if (pass == Pass::kBranches) {
      scale_by_gates<T>(p, cut);
    } else {
      make_statistics<T>(p, cut);
    }
  });
}

bool covered(const Combine& p) {
  return p.head_dim % kVector == 0 && p.heads_per_gate > 0 && p.rows % p.heads_per_gate == 0 &&
         p.rows <= kMostCombined && !(p.keeps_two && p.activation == Activation::kNone);
}

/// At least four lanes a row.
Cut cut_of(const Combine& p) {
  Cut cut;
  cut.log_lanes = 2;
  while (cut.log_lanes < 5 && (kVector << cut.log_lanes) < p.head_dim) ++cut.log_lanes;
  cut.heads_per_gate = Divisor(p.heads_per_gate);
  if (p.num_kv_heads == 0) return cut;  // no statistics are wanted
  cut.num_heads = Divisor(p.num_heads);
  cut.num_tokens = Divisor(p.num_tokens);
  cut.group = Divisor(p.num_heads / p.num_kv_heads);
  return cut;
}

/// A launch whose groups of lanes take `rows` rows each.
cudaError_t launch(const Combine& p, const Cut& cut, Pass pass, int64_t rows, cudaStream_t stream) {
  const int64_t groups = (p.rows + rows - 1) / rows, of_block = kThreads >> cut.log_lanes;
  const auto grid = static_cast<unsigned>((groups + of_block - 1) / of_block);
  if (pass == Pass::kForward)
    return portable::launch(combine_kernel, grid, kThreads, 0, stream, p, cut);
  return portable::launch(combine_backward_kernel, grid, kThreads, 0, stream, p, cut, pass);
}

}  // namespace

cudaError_t combine_forward(const Combine& p, cudaStream_t stream) {
  if (!covered(p) || (p.keeps_two && p.lse_cmp == nullptr)) return cudaErrorInvalidValue;
  if (p.rows == 0) return cudaSuccess;
  return launch(p, cut_of(p), Pass::kForward, kForwardRows, stream);
}

cudaError_t combine_backward(const Combine& p, cudaStream_t stream) {
  const bool statistics = p.d_branch[0] == nullptr;
  if (!covered(p) || (statistics ? p.activation == Activation::kNone : p.keeps_two))
    return cudaErrorInvalidValue;
  if (p.rows == 0) return cudaSuccess;
  const Cut cut = cut_of(p);
  if (!statistics) return launch(p, cut, Pass::kBranches, p.heads_per_gate, stream);
  const int rows = p.heads_per_gate > 1 ? p.heads_per_gate : 1 << cut.log_lanes;
  return launch(p, cut, Pass::kStatistics, rows, stream);
}

}  // namespace nsa::kernels

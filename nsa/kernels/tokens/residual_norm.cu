// Residual addition and RMSNorm: a warp a row, or a CTA where a row is wide. The gradient of the
// weight is summed by each over its rows, then over warps, always in one order; the sums over CTAs,
// of other kernels, too, are a launch of their own (column_sums).
#include <type_traits>

#include "nsa/kernels/common/launch.cuh"
#include "nsa/kernels/common/vector.cuh"
#include "nsa/kernels/tokens/token_kernels.h"

namespace nsa::kernels {
namespace {

using namespace tokens;

constexpr int kWarp = 32, kWarps = 8, kThreads = kWarps * kWarp;
constexpr int kCtas = 2;                 // of a multiprocessor at once: registers of the gradients
constexpr int kForwardCtas = 3;          // the same, of the forward pass of a warp a row
constexpr int kMostParts = 132 * kCtas;  // as many as an H200 has at once

/// Threads that share a row, of which a lane has at most four vectors.
struct WarpTeam {
  static constexpr int kSize = kWarp;
  __device__ static float sum(float x, float*) { return warp_sum(x); }
};
struct CtaTeam {
  static constexpr int kSize = kThreads;
  /// `partial` has a place a warp.
  __device__ static float sum(float x, float* partial) {
    const float own = warp_sum(x);
    __syncthreads();  // the sum before has been read
    if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = own;
    __syncthreads();
    float all = 0;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) all += partial[i];
    return all;
  }
};
constexpr int kMostVectors = 4, kMostOfWarp = kMostVectors * kVector * kWarp;
static_assert(kMostNormed == kMostVectors * kVector * kThreads);

template <typename Team>
__device__ __forceinline__ int lane_of() {
  return static_cast<int>(threadIdx.x % Team::kSize);
}

/// Visits the vectors of a row that this lane has: body(index of the register, column).
template <typename Team, int kVectors, typename Body>
__device__ __forceinline__ void for_columns(int dim, const Body& body) {
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int column = (i * Team::kSize + lane_of<Team>()) * kVector;
    if (column < dim) body(i, column);
  }
}

/// The weight, rounded, into shared memory; behind it are places of Team::sum.
template <typename T>
__device__ __forceinline__ const T* stage_weight(const ResidualNorm& p, float* shared) {
  T* weight = reinterpret_cast<T*>(shared);
  for (int column = threadIdx.x; column < p.dim; column += kThreads)
    weight[column] = static_cast<T>(p.weight[column]);
  __syncthreads();
  return weight;
}

__device__ __forceinline__ float* partial_sums(const ResidualNorm& p, float* shared) {
  return shared + p.dim / 2;
}

template <typename Team>
__device__ __forceinline__ int64_t first_row() {
  return int64_t(blockIdx.x) * (kThreads / Team::kSize) +
         static_cast<int>(threadIdx.x) / Team::kSize;
}
template <typename Team>
__device__ __forceinline__ int64_t row_stride() {
  return int64_t(gridDim.x) * (kThreads / Team::kSize);
}

template <typename T, typename Team, int kVectors>
__device__ __forceinline__ void normalize_row(const ResidualNorm& p, int64_t row, const T* weights,
                                              float* partial) {
  const int64_t begin = row * p.dim;
  uint4 bits[kVectors] = {}, added_bits[kVectors] = {};
  for_columns<Team, kVectors>(p.dim, [&](int i, int column) {
    bits[i] = load_bits(static_cast<const T*>(p.x) + begin + column);
    if (p.added != nullptr)
      added_bits[i] = load_bits(static_cast<const T*>(p.added) + begin + column);
  });
  float x[kVectors][kVector], squares = 0;
  for_columns<Team, kVectors>(p.dim, [&](int i, int column) {
    unpack<T>(x[i], bits[i]);
    if (p.added != nullptr) {
      float added[kVector];
      unpack<T>(added, added_bits[i]);
#pragma unroll
      for (int j = 0; j < kVector; ++j) x[i][j] += added[j];
      round_to<T>(x[i]);
      store(static_cast<T*>(p.sum) + begin + column, x[i]);
    }
#pragma unroll
    for (int j = 0; j < kVector; ++j) squares += x[i][j] * x[i][j];
  });
  const float scale = 1.f / sqrtf(Team::sum(squares, partial) / static_cast<float>(p.dim) + p.eps);
  if (lane_of<Team>() == 0) p.scale[row] = scale;
  for_columns<Team, kVectors>(p.dim, [&](int i, int column) {
    float weight[kVector];
    load(weight, weights + column);
#pragma unroll
    for (int j = 0; j < kVector; ++j) x[i][j] *= scale * weight[j];
    store(static_cast<T*>(p.out) + begin + column, x[i]);
  });
}

template <typename T, typename Team, int kVectors>
__device__ __forceinline__ void normalize(const ResidualNorm& p, float* shared) {
  const T* weights = stage_weight<T>(p, shared);
  for (int64_t row = first_row<Team>(); row < p.rows; row += row_stride<Team>())
    normalize_row<T, Team, kVectors>(p, row, weights, partial_sums(p, shared));
}

/// d_x of a row, and its norm once more where it is wanted; its terms of the weight's gradient are
/// added to d_weight.
template <typename T, typename Team, int kVectors>
__device__ __forceinline__ void differentiate_row(const ResidualNorm& p, int64_t row,
                                                  const T* weights, float* partial,
                                                  float (&d_weight)[kVectors][kVector]) {
  const int64_t begin = row * p.dim;
  const float scale = p.scale[row];
  uint4 x_bits[kVectors] = {}, d_bits[kVectors] = {}, rest_bits[kVectors] = {};
  for_columns<Team, kVectors>(p.dim, [&](int i, int column) {
    x_bits[i] = load_bits(static_cast<const T*>(p.x) + begin + column);
    d_bits[i] = load_bits(static_cast<const T*>(p.d_out) + begin + column);
    if (p.d_sum != nullptr)
      rest_bits[i] = load_bits(static_cast<const T*>(p.d_sum) + begin + column);
  });
  float along = 0;
  // x * scale and d_out * weight of eight columns; unpacked twice, as registers are short.
  const auto scaled = [&](int i, int column, float (&x)[kVector], float (&d)[kVector], bool adds) {
    float weight[kVector];
    unpack<T>(x, x_bits[i]);
    unpack<T>(d, d_bits[i]);
    load(weight, weights + column);
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      x[j] *= scale;
      if (adds) d_weight[i][j] += d[j] * x[j];
      d[j] *= weight[j];
    }
  };
  for_columns<Team, kVectors>(p.dim, [&](int i, int column) {
    float x[kVector], d[kVector];
    scaled(i, column, x, d, true);
#pragma unroll
    for (int j = 0; j < kVector; ++j) along += d[j] * x[j];
  });
  along = Team::sum(along, partial) / static_cast<float>(p.dim);
  for_columns<Team, kVectors>(p.dim, [&](int i, int column) {
    float x[kVector], d[kVector], rest[kVector];
    scaled(i, column, x, d, false);
    unpack<T>(rest, rest_bits[i]);
#pragma unroll
    for (int j = 0; j < kVector; ++j) rest[j] += scale * (d[j] - x[j] * along);
    store(static_cast<T*>(p.d_x) + begin + column, rest);
    if (p.out == nullptr) return;
    float out[kVector], weight[kVector];
    unpack<T>(out, x_bits[i]);
    load(weight, weights + column);
#pragma unroll
    for (int j = 0; j < kVector; ++j) out[j] *= scale * weight[j];  // as in the forward pass
    store(static_cast<T*>(p.out) + begin + column, out);
  });
}

/// A warp has the columns of its rows: the sums over warps are in shared memory.
template <int kVectors>
__device__ __forceinline__ void store_weight_gradient(WarpTeam, const ResidualNorm& p,
                                                      const float (&d_weight)[kVectors][kVector],
                                                      float* shared) {
  const int warp = threadIdx.x / kWarp;
  __syncthreads();
  for_columns<WarpTeam, kVectors>(p.dim, [&](int i, int column) {
#pragma unroll
    for (int j = 0; j < kVector; ++j) shared[warp * p.dim + column + j] = d_weight[i][j];
  });
  __syncthreads();
  for (int column = threadIdx.x; column < p.dim; column += kThreads) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) sum += shared[i * p.dim + column];
    p.d_weight[int64_t(blockIdx.x) * p.dim + column] = sum;
  }
}
/// A thread has its columns of all rows.
template <int kVectors>
__device__ __forceinline__ void store_weight_gradient(CtaTeam, const ResidualNorm& p,
                                                      const float (&d_weight)[kVectors][kVector],
                                                      float*) {
  for_columns<CtaTeam, kVectors>(p.dim, [&](int i, int column) {
#pragma unroll
    for (int j = 0; j < kVector; ++j)
      p.d_weight[int64_t(blockIdx.x) * p.dim + column + j] = d_weight[i][j];
  });
}

template <typename T, typename Team, int kVectors>
__device__ __forceinline__ void differentiate(const ResidualNorm& p, float* shared) {
  float d_weight[kVectors][kVector] = {};
  const T* weights = stage_weight<T>(p, shared);
  for (int64_t row = first_row<Team>(); row < p.rows; row += row_stride<Team>())
    differentiate_row<T, Team, kVectors>(p, row, weights, partial_sums(p, shared), d_weight);
  store_weight_gradient(Team(), p, d_weight, shared);
}

bool covered(const ResidualNorm& p) {
  return p.dim > 0 && p.dim % kVector == 0 && p.dim <= kMostNormed && p.rows / kWarps < INT32_MAX;
}

/// Shared memory of stage_weight and Team::sum.
size_t staged_bytes(const ResidualNorm& p) {
  return sizeof(uint16_t) * static_cast<size_t>(p.dim) + sizeof(float) * kWarps;
}

/// Calls body(std::integral_constant) with the vectors of a row that a lane has.
template <typename Team, typename Body>
__device__ __forceinline__ void by_width(int dim, const Body& body) {
  switch ((dim + Team::kSize * kVector - 1) / (Team::kSize * kVector)) {
    case 1:
      return body(std::integral_constant<int, 1>());
    case 2:
      return body(std::integral_constant<int, 2>());
    case 3:
      return body(std::integral_constant<int, 3>());
    default:
      return body(std::integral_constant<int, 4>());
  }
}

constexpr int kSumColumns = 16, kSumSlots = kThreads / kSumColumns;

/// Sums over rows of kSumColumns columns: a slot of threads takes every kSumSlots-th row, the sums
/// of the slots follow in their order.
__device__ __forceinline__ void sum_columns(const ColumnSums& p, float* shared) {
  constexpr int kInFlight = 9;
  const int lane = static_cast<int>(threadIdx.x) % kSumColumns,
            slot = static_cast<int>(threadIdx.x) / kSumColumns,
            column = static_cast<int>(blockIdx.x) * kSumColumns + lane;
  float sum = 0;
  for (int first = slot; first < p.rows; first += kSumSlots * kInFlight) {
    float x[kInFlight] = {};
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int row = first + i * kSumSlots;
      if (row < p.rows && column < p.columns) x[i] = p.parts[int64_t(row) * p.columns + column];
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) sum += x[i];
  }
  shared[threadIdx.x] = sum;
  __syncthreads();
  if (slot != 0 || column >= p.columns) return;
#pragma unroll
  for (int i = 1; i < kSumSlots; ++i) sum += shared[i * kSumColumns + lane];
  p.out[column] = sum;
}

template <typename Team>
__device__ __forceinline__ void normalize_rows(const ResidualNorm& p) {
  auto* const shared = reinterpret_cast<float*>(portable::dynamic_shared());
  by_type(p.element, [&](auto type) {
    by_width<Team>(p.dim, [&](auto vectors) {
      normalize<decltype(type), Team, decltype(vectors)::value>(p, shared);
    });
  });
}
template <typename Team>
__device__ __forceinline__ void differentiate_rows(const ResidualNorm& p) {
  auto* const shared = reinterpret_cast<float*>(portable::dynamic_shared());
  by_type(p.element, [&](auto type) {
    by_width<Team>(p.dim, [&](auto vectors) {
      differentiate<decltype(type), Team, decltype(vectors)::value>(p, shared);
    });
  });
}

/// Kernels by themselves: the backward pass takes more registers, and bandwidth needs many threads.
__global__ void __launch_bounds__(kThreads, kForwardCtas)
    residual_norm_kernel(const __grid_constant__ ResidualNorm p) {
  normalize_rows<WarpTeam>(p);
}
__global__ void __launch_bounds__(kThreads, kCtas)
    wide_norm_kernel(const __grid_constant__ ResidualNorm p) {
  normalize_rows<CtaTeam>(p);
}
__global__ void __launch_bounds__(kThreads, kCtas)
    residual_norm_backward_kernel(const __grid_constant__ ResidualNorm p) {
  differentiate_rows<WarpTeam>(p);
}
__global__ void __launch_bounds__(kThreads, kCtas)
    wide_norm_backward_kernel(const __grid_constant__ ResidualNorm p) {
  differentiate_rows<CtaTeam>(p);
}

__global__ void __launch_bounds__(kThreads)
    column_sums_kernel(const __grid_constant__ ColumnSums p) {
  __shared__ float shared[kThreads];
  sum_columns(p, shared);
}

}  // namespace

int residual_norm_parts(int64_t rows) {
  const int64_t parts = (rows + kWarps - 1) / kWarps;
  return static_cast<int>(parts < kMostParts ? parts : kMostParts);
}

cudaError_t residual_norm_forward(const ResidualNorm& p, cudaStream_t stream) {
  if (!covered(p) || p.d_out != nullptr) return cudaErrorInvalidValue;
  if (p.rows == 0) return cudaSuccess;
  // Some rows a warp, and several rounds of CTAs, so that some begin while others store.
  constexpr int kMostCtas = 132 * kForwardCtas * 4;
  const bool wide = p.dim > kMostOfWarp;
  const int64_t ctas = wide ? p.rows : (p.rows + kWarps - 1) / kWarps;
  const auto grid = static_cast<unsigned>(ctas < kMostCtas ? ctas : kMostCtas);
  const auto kernel = wide ? wide_norm_kernel : residual_norm_kernel;
  return portable::launch(kernel, grid, kThreads, staged_bytes(p), stream, p);
}

cudaError_t residual_norm_backward(const ResidualNorm& p, cudaStream_t stream) {
  if (!covered(p) || (p.d_out == nullptr && p.rows > 0)) return cudaErrorInvalidValue;
  if (p.rows == 0) return cudaSuccess;
  const auto grid = static_cast<unsigned>(residual_norm_parts(p.rows));
  if (p.dim > kMostOfWarp)
    return portable::launch(wide_norm_backward_kernel, grid, kThreads, staged_bytes(p), stream, p);
  const size_t shared = sizeof(float) * kWarps * static_cast<size_t>(p.dim);
  return portable::launch(residual_norm_backward_kernel, grid, kThreads, shared, stream, p);
}

cudaError_t column_sums(const ColumnSums& p, cudaStream_t stream) {
  if (p.rows < 0 || p.columns < 0 || (p.parts == nullptr && p.rows > 0))
    return cudaErrorInvalidValue;
  if (p.columns == 0) return cudaSuccess;
  const auto grid = static_cast<unsigned>((p.columns + kSumColumns - 1) / kSumColumns);
  return portable::launch(column_sums_kernel, grid, kThreads, 0, stream, p);
}

}  // namespace nsa::kernels

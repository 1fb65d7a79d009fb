#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "nsa/device/interval_attention.h"

/// Torch-free launchers of the kernels that only move tokens: one pass over memory, sums in fp32,
/// one rounding. D is a multiple of 8, addresses and strides of inputs are as in Strided, outputs
/// are contiguous. No allocation, no synchronisation, capturable; the same bits in every run.
namespace nsa::device {

/// y = R(position) x, or with the transposed R (the backward pass): pairs (2i, 2i+1) turned by
/// position * base^(-2i/D), angles in fp64.
struct Rotate {
  Strided x;                           ///< [B, S, H, D]
  void* out = nullptr;                 ///< [B, S, H, D]
  const int64_t* positions = nullptr;  ///< [S], or [B, S] when per_sequence
  bool per_sequence = false, inverse = false;
  int batch = 0, num_tokens = 0, num_heads = 0, head_dim = 0;
  double base = 0;
  Element element = Element::kBFloat16;
};
cudaError_t rotate(const Rotate& problem, cudaStream_t stream);

/// out[i] = mean of x over the tokens i*d .. i*d + l - 1.
struct PoolMean {
  Strided x;            ///< [B, S, H, D]; backward: gradient of the blocks, [B, N_c, H, D]
  void* out = nullptr;  ///< [B, N_c, H, D]; backward: gradient of the tokens, [B, S, H, D]
  int batch = 0, num_tokens = 0, num_blocks = 0, num_heads = 0, head_dim = 0;
  int block_size = 0, block_stride = 0;
  Element element = Element::kBFloat16;
};
cudaError_t pool_mean_forward(const PoolMean& problem, cudaStream_t stream);
cudaError_t pool_mean_backward(const PoolMean& problem, cudaStream_t stream);

/// o = sum of gate[branch] * o_branch over cmp, sel, win (paper, Eq. 5).
struct Combine {
  const void* branch[3] = {};    ///< [rows, D] contiguous, element type
  const float* gates = nullptr;  ///< [rows / heads_per_gate, 3]
  int64_t rows = 0;              ///< B * S * Hq
  int heads_per_gate = 1;        ///< 1, or G when the heads of a group share their gates
  int head_dim = 0;
  void* out = nullptr;          ///< forward: [rows, D]
  const void* d_out = nullptr;  ///< backward: [rows, D]
  void* d_branch[3] = {};       ///< backward: [rows, D]
  float* d_gates = nullptr;     ///< backward: as gates
  Element element = Element::kBFloat16;
};
cudaError_t combine_forward(const Combine& problem, cudaStream_t stream);
cudaError_t combine_backward(const Combine& problem, cudaStream_t stream);

/// out = silu(gate) * up.
struct Swiglu {
  const void* gate_up = nullptr;  ///< [rows, 2 * hidden] contiguous: gate, then up
  void* out = nullptr;            ///< forward: [rows, hidden]
  const void* d_out = nullptr;    ///< backward: [rows, hidden]
  void* d_gate_up = nullptr;      ///< backward: as gate_up
  int64_t rows = 0;
  int hidden = 0;  ///< multiple of 8
  Element element = Element::kBFloat16;
};
cudaError_t swiglu_forward(const Swiglu& problem, cudaStream_t stream);
cudaError_t swiglu_backward(const Swiglu& problem, cudaStream_t stream);

}  // namespace nsa::device

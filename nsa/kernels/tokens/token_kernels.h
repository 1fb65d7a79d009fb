#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "nsa/kernels/interval/interval_attention.h"

/// Torch-free launchers of the kernels that only move tokens: one pass over memory, sums in fp32,
/// one rounding. D is a multiple of 8, addresses and strides of inputs are as in Strided, outputs
/// are contiguous. No allocation, no synchronisation, capturable; the same bits in every run.
namespace nsa::kernels {

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

enum class Activation { kNone, kSigmoid, kSoftmax };

/// Row statistics of one branch's backward pass, as its kernels read them: what a gate does to
/// d_out is moved into the logarithm, log2 of sum exp less log2 of the gate, so that probabilities
/// come out times the gate and d_out can be read as it is.
struct GatedRows {
  const float* lse = nullptr;                      ///< [B, S, Hq] of the forward pass, natural log
  float *shifted_lse = nullptr, *delta = nullptr;  ///< written, `stride` floats from row to row
  int stride = 1;
  bool by_kv_head = false;  ///< rows in the order [B, Hkv, S, G] instead of [B, S, Hq]
  /// true: NaN in shifted_lse where d_out of the row or lse is not finite; false: +inf and a delta
  /// of 0 where lse is -inf.
  bool marks_bad_rows = false;
};

/// o = sum of gate[branch] * o_branch over cmp, sel, win (paper, Eq. 5), gates =
/// activation(logits).
struct Combine {
  const void* branch[3] = {};    ///< [rows, D] contiguous, element type
  const void* logits = nullptr;  ///< [rows / heads_per_gate, 3], float, or of the element type
  bool float_logits = true;
  Activation activation = Activation::kNone;
  int64_t rows = 0;        ///< B * S * Hq
  int heads_per_gate = 1;  ///< 1, or G when the heads of a group share their gates
  int head_dim = 0;
  void* out = nullptr;  ///< forward: [rows, D]
  /// Forward: `out` is the place of branch[1], and where another branch is dropped, the row of
  /// branch[1] takes the place of that one's. Dropped is branch[0] in a row without a compressed
  /// key, else the one with the largest gate. Backward, statistics: the branches are as this left
  /// them, branch[1] being the sum: of it the dropped one is made again. Gates must be activated.
  bool keeps_two = false;
  const float* lse_cmp = nullptr;  ///< forward, keeps_two: [rows], -inf where there is no key
  float* gates = nullptr;          ///< forward: activated, shape of logits; or null
  const void* d_out = nullptr;     ///< backward: [rows, D]
  void* d_logits = nullptr;        ///< backward: shape and type of logits
  void* d_branch[3] = {};          ///< backward: [rows, D]; or null, and
  GatedRows gated[3];              ///< statistics instead; gates must not be negative
  int* flags = nullptr;            ///< backward: three ints that become 0, or null
  int num_tokens = 0, num_heads = 0, num_kv_heads = 0;  ///< of `gated`
  Element element = Element::kBFloat16;
};
constexpr int64_t kMostCombined = INT32_MAX - (int64_t{1} << 16);  ///< rows
cudaError_t combine_forward(const Combine& problem, cudaStream_t stream);
cudaError_t combine_backward(const Combine& problem, cudaStream_t stream);

/// Gate logits of every token and KV head: mean of q over the heads of the group -> Linear -> SiLU
/// -> Linear, all in fp32. Tokens are rows; a row of q, and of d_q, has its heads side by side.
struct GateMlp {
  const void* q = nullptr;  ///< row r begins at r * q_stride elements
  int64_t q_stride = 0;     ///< multiple of 8
  const float *w1 = nullptr, *b1 = nullptr, *w2 = nullptr, *b2 = nullptr;
  float* logits = nullptr;          ///< forward: [rows, Hkv, 3]
  const float* d_logits = nullptr;  ///< backward: [rows, Hkv, 3]
  void* d_q = nullptr;              ///< backward: as q; its share is added, rounded once
  int64_t d_q_stride = 0;
  /// backward: [gate_mlp_parts(rows, Hkv), gate_mlp_weights(head_dim)], whose sum over the parts is
  /// d_w1, d_b1, d_w2, d_b2
  float* d_weights = nullptr;
  int64_t rows = 0;
  int num_heads = 0, num_kv_heads = 0, head_dim = 0;  ///< head_dim: multiple of 8 up to 192
  Element element = Element::kBFloat16;
};
constexpr int kMostGateDim = 192;
/// w1 [head_dim / 2, head_dim], b1 [head_dim / 2], w2 [3, head_dim / 2], b2 [3].
constexpr int gate_mlp_weights(int head_dim) { return head_dim / 2 * (head_dim + 4) + 3; }
int gate_mlp_parts(int64_t rows, int num_kv_heads);
/// Shared memory that a CTA needs.
size_t gate_mlp_shared_bytes(int head_dim);
cudaError_t gate_mlp_forward(const GateMlp& problem, cudaStream_t stream);
cudaError_t gate_mlp_backward(const GateMlp& problem, cudaStream_t stream);

/// out = silu(gate) * up.
struct Swiglu {
  const void* gate_up = nullptr;  ///< [rows, 2 * hidden] contiguous: gate, then up
  void* out = nullptr;          ///< [rows, hidden]; backward: computed again, may be d_out, or null
  const void* d_out = nullptr;  ///< backward: [rows, hidden]
  void* d_gate_up = nullptr;    ///< backward: as gate_up
  int64_t rows = 0;
  int hidden = 0;  ///< multiple of 8
  Element element = Element::kBFloat16;
};
cudaError_t swiglu_forward(const Swiglu& problem, cudaStream_t stream);
cudaError_t swiglu_backward(const Swiglu& problem, cudaStream_t stream);

/// sum = x + added, rounded, and out = sum / sqrt(mean(sum^2) + eps) * weight over the last axis.
struct ResidualNorm {
  const void* x = nullptr;        ///< forward: [rows, dim]; backward: the sum
  const void* added = nullptr;    ///< forward: [rows, dim], or null
  const float* weight = nullptr;  ///< [dim], rounded to the element type where it is used
  void* sum = nullptr;            ///< forward: [rows, dim], or null without added
  void* out = nullptr;     ///< [rows, dim]; backward: the same bits again, may be d_out, or null
  float* scale = nullptr;  ///< [rows], 1 / sqrt(mean + eps): written forward, read backward
  const void* d_out = nullptr;  ///< backward: [rows, dim]
  const void* d_sum = nullptr;  ///< backward: gradient of the sum from elsewhere, or null
  void* d_x = nullptr;          ///< backward: [rows, dim]; that of added is the same
  /// backward: [residual_norm_parts(rows), dim], whose sum over the parts is that of the weight
  float* d_weight = nullptr;
  int64_t rows = 0;
  int dim = 0;  ///< multiple of 8, at most kMostNormed
  float eps = 0;
  Element element = Element::kBFloat16;
};
constexpr int kMostNormed = 8192;
int residual_norm_parts(int64_t rows);
cudaError_t residual_norm_forward(const ResidualNorm& problem, cudaStream_t stream);
cudaError_t residual_norm_backward(const ResidualNorm& problem, cudaStream_t stream);

/// out[column] = sum of parts[row, column] over the rows, fp32, always in one order.
struct ColumnSums {
  const float* parts = nullptr;  ///< [rows, columns]
  float* out = nullptr;          ///< [columns]
  int rows = 0, columns = 0;
};
cudaError_t column_sums(const ColumnSums& problem, cudaStream_t stream);

/// Rotated copies of token tensors and means over their blocks, all in one launch. Token t stands
/// at position t.
struct TokenSources {
  struct Copy {
    Strided x;            ///< [B, S, H, dk]
    void* out = nullptr;  ///< the same, rotated
    int num_heads = 0;
  };
  struct Pool {
    Strided x;            ///< [B, S, H, D]
    void* out = nullptr;  ///< [B, N_c, H, D]
    int num_heads = 0, head_dim = 0;
    bool rotated = false;  ///< tokens are rotated, and rounded, before the mean
  };
  Copy copy[3];
  Pool pool[2];
  int num_copies = 0, num_pools = 0;
  int batch = 0, num_tokens = 0, num_blocks = 0, block_size = 0, block_stride = 0;
  int qk_head_dim = 0;  ///< of every copy and of what is rotated
  /// (cos, sin) of the angles, [>= num_tokens, qk_head_dim / 2], 16-byte aligned, where something
  /// is rotated.
  const float2* cos_sin = nullptr;
  /// Of packed documents: [num_blocks] first token of a block, -1 where its mean is to be 0; null:
  /// block i begins at token i * block_stride.
  const int32_t* block_first = nullptr;
  Element element = Element::kBFloat16;
};
cudaError_t token_sources(const TokenSources& problem, cudaStream_t stream);

/// Gradients of token tensors in one launch: out = R^T (sum of terms + pooling's share), where R
/// turns token t by position t. Sums in fp32 in the order of the terms, one rounding.
struct TokenGradients {
  struct Of {
    const void* term[4] = {};      ///< [B, S, H, D] contiguous; null behind the last
    const void* blocks = nullptr;  ///< gradient of the means, [B, N_c, H, D] contiguous, or null
    void* out = nullptr;           ///< [B, S, H, D]; may be a term
    int64_t out_stride = 0;        ///< from token to token; 0: H * D
    int tokens = -1;               ///< only the first so many of each sequence; -1: all
    int num_heads = 0, head_dim = 0;
    bool rotated = false;
  };
  static constexpr int kMost = 7;
  Of of[kMost];
  int count = 0;
  int batch = 0, num_tokens = 0, num_blocks = 0, block_size = 0, block_stride = 0;
  int qk_head_dim = 0;  ///< of what is rotated
  /// (cos, sin) of the angles, [>= num_tokens, qk_head_dim / 2], 16-byte aligned, where something
  /// is rotated.
  const float2* cos_sin = nullptr;
  /// Of packed documents: `block_first` as in TokenSources, and [num_tokens] the first token of a
  /// token's document, whose blocks begin at row start / block_stride; or null both.
  const int32_t *block_first = nullptr, *start = nullptr;
  Element element = Element::kBFloat16;
};
cudaError_t token_gradients(const TokenGradients& problem, cudaStream_t stream);

}  // namespace nsa::kernels

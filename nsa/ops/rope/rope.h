#pragma once
#include <ATen/core/Tensor.h>

#include "nsa/config/config.h"

namespace nsa {

/// Rotary position embedding of pairs (docs/semantics.md, RoPE):
///   (x[i], x[j]) -> (x[i] cos a - x[j] sin a, x[i] sin a + x[j] cos a),
///   a = positions * base^(-2m/D), each head on its own;
///   (i, j) = (2m, 2m+1) interleaved, (m, m + D/2) half-split.
/// x [..., S, H, D], any float type, D even; positions int64 [S], or [B, S] when x is [B, S, H, D].
/// Angles, cos and sin are fp64, rounded once to the accumulation type (fp32; fp64 for fp64); the
/// result is rounded once to the type of x. Differentiable in x. Throws c10::Error by name.
at::Tensor rope(const at::Tensor& x, const at::Tensor& positions, double base = 1e4,
                RopePairs pairs = RopePairs::kInterleaved);

/// Rotates several tensors at the same positions; the table is made once, and only when one of them
/// does not go to the kernel.
class Rotation {
 public:
  /// positions as rope's.
  Rotation(at::Tensor positions, double base, RopePairs pairs);
  /// rope(x, positions, base, pairs).
  at::Tensor operator()(const at::Tensor& x);

 private:
  at::Tensor positions_, table_;
  double base_;
  RopePairs pairs_;
};

/// cos + i sin of every angle, complex in the accumulation type of `dtype`: [..., dim / 2].
/// One table serves every tensor rotated at the same positions.
at::Tensor rope_table(const at::Tensor& positions, int64_t dim, double base, at::ScalarType dtype);
/// Rotates x [..., S, H, D] by a table [S, D/2] or [B, S, D/2] made by rope_table.
at::Tensor rope_apply(const at::Tensor& x, const at::Tensor& table,
                      RopePairs pairs = RopePairs::kInterleaved);

}  // namespace nsa

#pragma once
#include <ATen/core/Tensor.h>

namespace nsa {

/// Rotary position embedding of interleaved pairs (docs/semantics.md, RoPE):
///   (x[2m], x[2m+1]) -> (x[2m] cos a - x[2m+1] sin a, x[2m] sin a + x[2m+1] cos a),
///   a = positions * base^(-2m/D), each head on its own.
/// x [..., S, H, D], any float type, D even; positions int64 [S], or [B, S] when x is [B, S, H, D].
/// Angles, cos and sin are fp64, rounded once to the accumulation type (fp32; fp64 for fp64); the
/// result is rounded once to the type of x. Differentiable in x. Throws c10::Error by name.
at::Tensor rope(const at::Tensor& x, const at::Tensor& positions, double base = 1e4);

/// Rotates several tensors at the same positions; the table is made once, and only when one of them
/// does not go to the kernel.
class Rotation {
 public:
  /// positions as rope's.
  Rotation(at::Tensor positions, double base);
  /// rope(x, positions, base).
  at::Tensor operator()(const at::Tensor& x);

 private:
  at::Tensor positions_, table_;
  double base_;
};

/// cos + i sin of every angle, complex in the accumulation type of `dtype`: [..., dim / 2].
/// One table serves every tensor rotated at the same positions.
at::Tensor rope_table(const at::Tensor& positions, int64_t dim, double base, at::ScalarType dtype);
/// Rotates x [..., S, H, D] by a table [S, D/2] or [B, S, D/2] made by rope_table.
at::Tensor rope_apply(const at::Tensor& x, const at::Tensor& table);

}  // namespace nsa

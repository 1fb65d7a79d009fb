#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "nsa/config/config.h"

namespace suites::eval {

/// One axis that a tensor must have; size -1 accepts any.
struct Axis {
  std::string name;
  int64_t size;
};
using Axes = std::vector<Axis>;

/// How tokens lie in the tensors: batched [B, S, ...], or packed documents [T, ...].
struct Layout {
  int64_t batch = 0;             ///< B; packed: 1
  int64_t tokens = 0;            ///< S; packed: T
  std::vector<int64_t> offsets;  ///< packed: first token of each document, then T; else empty

  bool packed() const { return !offsets.empty(); }
  /// [B, S, rest...] or [T, rest...].
  Axes axes(const Axes& rest) const;

  /// Packed operators run document by document; a batched tensor is one part. No documents count
  /// as one of length 0, so that every output gets its shape.
  size_t num_parts() const;
  int64_t length(size_t part) const;  ///< tokens of the part
  int64_t longest() const;            ///< of the longest part
  /// The tokens of a part of x, with an axis B in front.
  at::Tensor part(const at::Tensor& x, size_t part) const;
  /// The blocks of a part of k_cmp or v_cmp, [B, N_c, ...].
  at::Tensor part_blocks(const at::Tensor& x, size_t part, const nsa::NsaConfig& config) const;
  /// The parts as one tensor of the layout; a `width` >= 0 pads the last axis with 0.
  at::Tensor join(const std::vector<at::Tensor>& parts, int64_t width = -1) const;
  /// Packed: int32 [docs + 1], cumulative sum of N_c(length).
  at::Tensor cu_cmp(const nsa::NsaConfig& config) const;
};

}  // namespace suites::eval

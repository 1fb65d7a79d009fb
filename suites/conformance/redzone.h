#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

/// Poisoned memory: bytes 0xFF, which are NaN in every float type and -1 in every integer, stand
/// around (and, before they are written, inside) what an implementation may touch.
namespace suites {

/// A tensor in the middle of a larger poisoned storage. The values start 64-byte aligned and are
/// contiguous; right before and behind them, and between its tokens when `gaps` is set, lies
/// poison.
class GuardedTensor {
 public:
  /// Copies x [B,S,...] (any device) in.
  explicit GuardedTensor(const at::Tensor& x, bool gaps = false);
  const at::Tensor& tensor() const { return tensor_; }
  /// Bytes of the storage, values included, that are not what they were when it was made.
  int64_t changed_bytes() const;

 private:
  at::Tensor storage_;  ///< uint8
  at::Tensor before_;   ///< its copy
  at::Tensor tensor_;   ///< a view of the storage
};

/// While it lives, every CPU allocation of LibTorch is poisoned and has a poisoned band on both
/// sides, looked at when the memory is freed. At most one at a time.
class RedzoneScope {
 public:
  RedzoneScope();
  ~RedzoneScope();
  RedzoneScope(const RedzoneScope&) = delete;
  RedzoneScope& operator=(const RedzoneScope&) = delete;

  int64_t allocations() const;  ///< made so far
  int64_t violations() const;   ///< freed blocks whose bands were written to

 private:
  c10::Allocator* before_;
};

}  // namespace suites

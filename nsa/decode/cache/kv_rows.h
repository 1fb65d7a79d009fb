#pragma once
#include <ATen/core/Tensor.h>

#include "nsa/config/config.h"

namespace nsa {

/// Cached keys and values by row; a row holds one token, or one compressed block, of all KV heads.
struct KvRows {
  at::Tensor k;  ///< [rows, Hkv, dk]
  at::Tensor v;  ///< [rows, Hkv, dv]

  /// Allocated once, content undefined: nothing may read a row that was not written.
  static KvRows allocate(const NsaConfig& config, int64_t num_rows, at::TensorOptions options);
  /// k [n, Hkv, dk], v [n, Hkv, dv] to the rows `row` int64 [n], no two equal.
  void write(const at::Tensor& row, const at::Tensor& new_k, const at::Tensor& new_v);
  /// Keeps the rows, which must all be unwritten, in the next wider type: what many loads of a row
  /// send back to it under autograd is then added up without rounding. Values stay those of `type`.
  void widen();
  int64_t bytes() const;

  at::ScalarType type = at::kFloat;  ///< of what is written and loaded
};

/// What loads of one kind fetched, per sequence of a step and KV head: int64 [A, Hkv]. Undefined
/// until the first load.
struct LoadCount {
  at::Tensor loaded;    ///< index entries fetched by the first load
  at::Tensor masked;    ///< padding of any load
  at::Tensor repeated;  ///< index entries fetched by further loads of the same kind
};

/// Keys and values fetched for A sequences, L rows each.
struct LoadedKv {
  at::Tensor k;       ///< [A, Hkv, L, dk], 0 in padding
  at::Tensor v;       ///< [A, Hkv, L, dv], 0 in padding
  at::Tensor masked;  ///< [A, Hkv, L] bool
};

/// The only way to a cached key or value. Fetches the rows named by `row` int64 [A, 1 or Hkv, L],
/// negative = padding, and counts the entries of that same index. Padding reads as 0
/// whatever the memory holds. No host synchronisation.
LoadedKv load(const KvRows& from, const at::Tensor& row, LoadCount& count);

}  // namespace nsa

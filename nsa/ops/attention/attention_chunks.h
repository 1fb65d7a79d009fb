#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "nsa/ops/attention/key_mask.h"

namespace nsa {

/// Queries [begin, begin + count) and the span of keys they may attend.
struct QueryChunk {
  int64_t begin;
  int64_t count;
  KeyMask::Span keys;
};

/// Cuts S queries so that one chunk of logits stays small (2^27 values on a GPU, 2^23 on a CPU) and
/// keys beyond a chunk's reach are not multiplied.
std::vector<QueryChunk> query_chunks(const at::Tensor& q, const at::Tensor& k, const KeyMask& mask);

/// Views and copies of one call's tensors, group-major, ready for batched matrix products.
/// Legend: R = B * Hkv (one matrix each), M = G * count rows, N keys.
class GroupedHeads {
 public:
  GroupedHeads(const at::Tensor& q, const at::Tensor& k);

  /// [B, S, Hq, D] queries of one chunk -> [R, M, D] in the type of products.
  at::Tensor rows(const at::Tensor& x, const QueryChunk& chunk) const;
  /// [R, M, D] -> the chunk of y [B, S, Hq, D].
  void store_rows(const at::Tensor& rows, const QueryChunk& chunk, at::Tensor& y) const;
  /// [B, N, Hkv, D] -> [R, N, D] in the type of products.
  at::Tensor keys(const at::Tensor& x) const;
  /// [R, N, D] in the type of sums -> [B, N, Hkv, D] in the type of `like`.
  at::Tensor from_keys(const at::Tensor& x, const at::Tensor& like) const;
  /// [R, M, n] -> [B, Hkv, G, count, n].
  at::Tensor split(const at::Tensor& x, const QueryChunk& chunk) const;
  /// The inverse of split: [B, Hkv, G, count, n] -> [R, M, n].
  at::Tensor flatten(const at::Tensor& x, const QueryChunk& chunk) const;

  /// a [R, x, y] times b [R, y, z], both in the type of products, summed and returned in the
  /// type of sums. On CUDA, half and bfloat16 multiply on tensor cores; else the two types are one.
  at::Tensor product(const at::Tensor& a, const at::Tensor& b) const;
  /// rows [R, M, D] times keys [R, n, D], scaled: [R, M, n]. Equal keys have equal logits to the
  /// last bit, so that what the definition calls a tie is one.
  at::Tensor logits(const at::Tensor& rows, const at::Tensor& keys, double scale) const;
  at::Tensor to_product_type(const at::Tensor& x) const;

  int64_t batch, num_kv_heads, group_size;
  at::ScalarType sums;  ///< of products; at least the accumulation type
  at::ScalarType product_type;
};

}  // namespace nsa

#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "nsa/ops/attention/attention_chunks.h"
#include "nsa/ops/selected/row_tokens.h"

namespace nsa {

/// Arguments of one call, checked.
struct SelAttnArgs {
  at::Tensor q, k, v;  ///< [B, S, Hq, dk], [B, N, Hkv, dk], [B, N, Hkv, dv]
  at::Tensor ranges;   ///< [B, S, Hkv, K, 2] int32
  int64_t first_position;
  double scale;
  int64_t block_size = 0;  ///< as in SelAttnOptions
  /// Of ranges of any kind: no row's meet more aligned tiles of 64 keys; 0: not known. A row that
  /// breaks it is NaN.
  int64_t max_tiles = 0;
  /// Backward, by the kernels: tokens of the window branch with the same k, v and scale, whose
  /// gradients of the queries in whole tiles are computed here; 0: of none.
  int64_t window = 0;
};

/// One call as independent rows (b, KV head, query), each with its G heads and its own tokens.
/// Reading the lengths synchronises with the device.
struct RowProblem {
  explicit RowProblem(const SelAttnArgs& args);

  /// [B, S, Hq, D] -> [rows, G, D], type kept.
  at::Tensor to_rows(const at::Tensor& x) const;
  /// The inverse of to_rows.
  at::Tensor from_rows(const at::Tensor& x) const;
  /// Tokens of rows [n] as places in k and v: adds the start of the row's (b, KV head).
  at::Tensor key_index(const at::Tensor& rows, const at::Tensor& tokens) const;

  GroupedHeads heads;
  double scale;
  int64_t num_queries, num_keys;
  at::Tensor q;     ///< [rows, G, dk], type of products
  at::Tensor k, v;  ///< [B * Hkv * N, D], type of products
  RowTokens tokens;
  std::vector<int64_t> lengths;  ///< of the rows, on the host
};

/// Rows that are computed together.
struct RowBatch {
  at::Tensor rows;  ///< [n] int64
  int64_t longest;  ///< tokens of the longest row, at least 1
  int64_t total;    ///< tokens of all rows
};

/// Values a batch may gather: bounds memory, so that nothing grows faster than S.
int64_t row_budget(const RowProblem& problem);

/// Rows of a batch that becomes a batched product: cuBLAS takes 65535 matrices at most.
inline constexpr int64_t kMaxBatchRows = 32768;

/// Every row that has tokens, by ascending number.
std::vector<int64_t> rows_with_tokens(const RowProblem& problem);

struct BatchSize {
  int64_t rows, shortest, longest, total;  ///< tokens, but for the first
};

/// Cuts `order` into batches; `fits` returns whether a batch may have that size. A batch has one
/// row at least.
std::vector<RowBatch> cut_batches(const RowProblem& problem, const std::vector<int64_t>& order,
                                  const std::function<bool(const BatchSize&)>& fits);

}  // namespace nsa

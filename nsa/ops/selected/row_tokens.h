#pragma once
#include <ATen/core/Tensor.h>

namespace nsa {

/// The union of each row's intervals up to its own position, as ascending intervals that do not
/// overlap. Rows are (b, KV head, query) in this order, rows = B * Hkv * S; all int64.
struct RowTokens {
  at::Tensor stop;    ///< [rows, K] tokens of the row in the intervals up to and including this one
  at::Tensor offset;  ///< [rows, K] add it to a place in the row to get the token
  at::Tensor length;  ///< [rows] tokens of the row
};

/// ranges [B, S, Hkv, K, 2] int32, any values; query i stands at first_position + i.
RowTokens row_tokens(const at::Tensor& ranges, int64_t first_position);

/// The first `longest` tokens of the chosen rows [n] -> [n, longest], ascending; places behind the
/// end of a row hold tokens of no meaning, no two of a row equal.
at::Tensor padded_tokens(const RowTokens& tokens, const at::Tensor& rows, int64_t longest);

/// All tokens of the chosen rows [n], one row behind the other -> [total].
at::Tensor flat_tokens(const RowTokens& tokens, const at::Tensor& rows, int64_t total);

}  // namespace nsa

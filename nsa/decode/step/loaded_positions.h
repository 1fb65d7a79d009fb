#pragma once
#include <ATen/core/Tensor.h>

namespace nsa {

// Which positions a row loads, -1 where there is none. A = sequences of the
// step; `width` must be enough for all of them. No host synchronisation.

/// 0 .. count - 1 for counts int64 [A] -> [A, 1, width].
at::Tensor first_positions(const at::Tensor& count, int64_t width);

/// t - width + 1 .. t for positions t int64 [A]; below 0: -1 -> [A, 1, width].
at::Tensor last_positions(const at::Tensor& t, int64_t width);

/// The union of half-open intervals int32 [A, Hkv, K, 2] up to each row's t int64 [A], ascending,
/// every token once, whatever order and overlap the intervals have -> [A, Hkv, width].
at::Tensor range_positions(const at::Tensor& ranges, const at::Tensor& t, int64_t width);

}  // namespace nsa

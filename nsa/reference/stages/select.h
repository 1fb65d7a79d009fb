#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "nsa/reference/config.h"
#include "nsa/reference/tensor.h"

namespace nsa::reference {

/// Whether block j is chosen at t whatever its score: j < n_initial, or one of the last n_local
/// blocks up to the current one.
bool is_forced(const Config& config, int64_t j, int64_t t);

/// Paper Eqs. 11 and 12 for one (b, t, KV head). scores: at least c+1 values, c = floor(t/l').
/// Forced blocks, then the others by score descending, equal scores to the lower index, NaN below
/// every number; min(n, c+1) ids, ascending, then -1 up to n places.
std::vector<int32_t> select_row(const Config& config, std::span<const double> scores, int64_t t);

/// scores [B,S,Hkv,ceil(S/l')] -> block_idx [B,S,Hkv,n].
Tensor<int32_t> select(const Config& config, const Tensor<double>& scores);

/// Distance of the lowest chosen free score from the highest rejected one, for one row as chosen by
/// select_row; +inf where no free block was chosen or none rejected.
double selection_margin(const Config& config, std::span<const double> scores, int64_t t);

}  // namespace nsa::reference

#include "nsa/reference/stages/select.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "nsa/reference/stages/compress.h"

namespace nsa::reference {
namespace {

/// Blocks 0 .. c that are not forced, best first.
std::vector<int32_t> free_blocks_by_rank(const Config& c, std::span<const double> scores,
                                         int64_t t) {
  std::vector<int32_t> free;
  for (int64_t j = 0; j <= t / c.sel_block_size; ++j)
    if (!is_forced(c, j, t)) free.push_back(static_cast<int32_t>(j));
  // Stable: equal scores (and NaNs) keep ascending order.
  std::stable_sort(free.begin(), free.end(), [&](int32_t a, int32_t b) {
    const double sa = scores[static_cast<size_t>(a)], sb = scores[static_cast<size_t>(b)];
    if (std::isnan(sa) || std::isnan(sb)) return !std::isnan(sa) && std::isnan(sb);
    return sa > sb;
  });
  return free;
}

/// How many places are left for free blocks at t.
size_t num_free_places(const Config& c, int64_t t) {
  int64_t places = c.top_n;
  for (int64_t j = 0; j <= t / c.sel_block_size; ++j) places -= is_forced(c, j, t);
  return static_cast<size_t>(places);
}

}  // namespace

bool is_forced(const Config& c, int64_t j, int64_t t) {
  const int64_t current = t / c.sel_block_size;
  return 0 <= j && j <= current && (j < c.n_initial || j > current - c.n_local);
}

std::vector<int32_t> select_row(const Config& c, std::span<const double> scores, int64_t t) {
  const int64_t current = t / c.sel_block_size;
  if (static_cast<int64_t>(scores.size()) <= current)
    reject("select", "scores", "at least " + std::to_string(current + 1) + " wide",
           std::to_string(scores.size()));
  std::vector<int32_t> ids;
  for (int64_t j = 0; j <= current; ++j)
    if (is_forced(c, j, t)) ids.push_back(static_cast<int32_t>(j));
  const std::vector<int32_t> free = free_blocks_by_rank(c, scores, t);
  const size_t chosen = std::min(free.size(), num_free_places(c, t));
  ids.insert(ids.end(), free.begin(), free.begin() + static_cast<ptrdiff_t>(chosen));
  std::sort(ids.begin(), ids.end());
  ids.resize(static_cast<size_t>(c.top_n), -1);
  return ids;
}

Tensor<int32_t> select(const Config& c, const Tensor<double>& scores) {
  require_rank("select", "scores", scores, 4, "[B,S,Hkv,ceil(S/l')]");
  const int64_t B = scores.size(0), S = scores.size(1);
  require_shape("select", "scores", scores, {B, S, c.num_kv_heads, num_sel_blocks(c, S)});
  Tensor<int32_t> block_idx({B, S, c.num_kv_heads, c.top_n});
  for (int64_t b = 0; b < B; ++b)
    for (int64_t t = 0; t < S; ++t)
      for (int64_t j = 0; j < c.num_kv_heads; ++j)
        std::ranges::copy(select_row(c, scores.row(b, t, j), t), block_idx.row(b, t, j).begin());
  return block_idx;
}

double selection_margin(const Config& c, std::span<const double> scores, int64_t t) {
  const std::vector<int32_t> free = free_blocks_by_rank(c, scores, t);
  const size_t places = num_free_places(c, t);
  if (places == 0 || free.size() <= places) return std::numeric_limits<double>::infinity();
  return scores[static_cast<size_t>(free[places - 1])] - scores[static_cast<size_t>(free[places])];
}

}  // namespace nsa::reference

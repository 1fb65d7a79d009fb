#pragma once
#include <cstdint>
#include <vector>

#include "nsa/ops/cpu/inner_loops/kernel_table.h"
#include "nsa/ops/cpu/tiles/key_panels.h"
#include "nsa/ops/cpu/tiles/tile_keys.h"

namespace nsa::cpu {

/// Rows (query, head) that meet a panel at one time: their logits stay in the first-level cache.
inline constexpr int64_t kStepRows = 96;

/// Queries of a tile whose rows fill about `rows`.
inline int64_t queries_of_tile(int64_t rows, const Sizes& sizes) {
  return std::max<int64_t>(1, rows / sizes.group);
}

/// A tile of queries of one (b, KV head).
struct QueryTile {
  int64_t b, kv_head;
  int64_t first_query, num_queries;
  int64_t matrix(const Sizes& sizes) const { return b * sizes.num_kv_heads + kv_head; }
  int64_t first_head(const Sizes& sizes) const { return kv_head * sizes.group; }
};

/// Rows of a tile that meet one panel, kStepRows at a time.
template <typename Step>
void for_steps(const TileKeys::Panel& panel, int64_t group, const Step& step) {
  const int64_t most = std::max<int64_t>(1, kStepRows / group);
  for (int64_t begin = 0; begin < panel.count; begin += most)
    step(PanelRows{std::min(most, panel.count - begin), group, panel.queries + begin,
                   panel.keys + begin});
}

/// Most rows of a step.
inline int64_t step_rows(const Sizes& sizes) { return std::max(kStepRows, sizes.group); }

/// The rows of `rows` out of `tile` [rows of the tile, width]: in place where the queries follow
/// one another, else copied to `buffer`.
const float* gather_rows(const PanelRows& rows, const float* tile, int64_t width, float* buffer);

}  // namespace nsa::cpu

#pragma once
#include "nsa/kernels/interval/interval_bounds.h"
#include "nsa/kernels/interval/sm90/interval_attention_launch.h"

namespace nsa::kernels {

/// Tokens that a tile of packed documents holds at most, as the forward kernels cut rows: a
/// question of sizes, code and whether blocks are chosen.
inline int tokens_of_tile(const IntervalAttention& p) {
  const int group = p.num_heads / p.num_kv_heads,
            rows = p.code == Code::kSm80 ? 64 : 64 * sm90::warpgroups_of(p.qk_head_dim);
  if (p.selection.block_idx == nullptr)
    return p.code == Code::kSm80 ? sm90::row_tiling(group, rows).tokens : rows / group;
  int row_group = 1;
  while (row_group < group) row_group *= 2;
  return rows / row_group;
}

}  // namespace nsa::kernels

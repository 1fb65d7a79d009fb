#pragma once
#include <vector>

#include "nsa/ops/cpu/panel_attention.h"

namespace nsa::cpu {

/// Cached keys and values of one kind and of one sequence: in pages, or in a ring.
struct CachedKv {
  at::Tensor k, v;                 ///< [rows, Hkv, dim] of the type of q
  const int64_t* pages = nullptr;  ///< page of every `length` positions; null: a ring
  int64_t length = 1;              ///< rows of a page, or slots of the ring
  int64_t first = 0;               ///< ring: row of slot 0

  int64_t row(int64_t position) const {
    return (pages == nullptr ? first : pages[position / length] * length) + position % length;
  }
};

/// One sequence of a step, its newest token at position t and in its caches.
struct CachedSequence {
  CachedKv compressed, selected, window;
  int64_t t = 0;
  int64_t num_blocks = 0;  ///< compressed blocks that t sees: all that the cache holds
};

struct CachedAttention {
  PanelAttention cmp, sel, win;  ///< B = sequences, S = 1
  at::Tensor block_idx;          ///< [A, 1, Hkv, n] int32, as select_blocks gives
  at::Tensor ranges;             ///< [A, 1, Hkv, n, 2] int32, as block_ranges gives
  at::Tensor reads;              ///< [A, 1, Hkv, 3] int64: rows copied for cmp, sel, win
};

/// A decode step of all branches: q [A, 1, Hq, dk] rotated, of fp32, bf16 or fp16. Products,
/// softmax and sums in fp32, a task for each (sequence, KV head).
CachedAttention attend_cached(const at::Tensor& q, const std::vector<CachedSequence>& sequences,
                              const NsaConfig& config);

}  // namespace nsa::cpu

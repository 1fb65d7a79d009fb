// Interval attention, forward: what a launch passes, and the rows and keys of a CTA.
#pragma once
#include "nsa/kernels/common/tiles.cuh"
#include "nsa/kernels/interval/block_selector.cuh"
#include "nsa/kernels/interval/interval_attention.h"
#include "nsa/kernels/interval/interval_bounds.h"

namespace nsa::kernels::sm80 {

using sm90::keys_of, sm90::Span;

constexpr float kLog2e = 1.4426950408889634f;
constexpr int kTileRows = 64;  // of a CTA: four warps of 16

/// What a launch passes by value.
struct IntervalArguments {
  Strided q, k, v;
  void* out;
  float* lse;
  int num_queries, num_keys, num_heads, group_size, first_position;
  int row_group;        // rows a token takes in a tile
  int heads;            // of them that are heads
  int tokens_per_tile;  // rows of a tile / row_group
  int tiles;            // of tokens
  Divisor by_row_group, by_head_parts, by_parts, by_kv_heads, by_stride;
  IntervalRule rule;
  float scale_log2;
  BlockSelection selection;
  Divisor by_sel_block;
  int strides, overlap;           // l' / d, and l / d - 1
  const DocumentTile* documents;  // [tiles], or null
};

/// A row of the problem, or, if not used, one beside it.
struct IntervalRow {
  bool used;
  int token, head;  // of all
  int64_t place;    // among all rows [B, S, Hq]
  Span keys;
};

/// Tokens [first, first + count) and heads from first_head on, and the keys any of them attends.
struct IntervalTile {
  int first, count, first_head, kv_head, batch;
  int shift;         // token t stands at position shift + t
  int first_key;     // where the keys of its document begin
  int select_steps;  // of 128 keys, until all blocks that a token may choose have their scores
  Span keys;

  __device__ static IntervalTile of(const IntervalArguments& a, int unit) {
    IntervalTile t;
    const int index = a.by_head_parts.quotient(unit), head_part = a.by_head_parts.remainder(unit);
    const int head_of_batch = a.by_parts.quotient(head_part);
    t.batch = a.by_kv_heads.quotient(head_of_batch);
    t.kv_head = a.by_kv_heads.remainder(head_of_batch);
    t.first_head = t.kv_head * a.group_size + a.by_parts.remainder(head_part) * a.heads;
    if (a.documents != nullptr) {
      const DocumentTile own = a.documents[index];
      t.first = own.first, t.count = own.count, t.shift = -own.start, t.first_key = own.first_key;
    } else {
      // The last tokens attend the most keys: they come first, those of all KV heads.
      t.first = (a.tiles - 1 - index) * a.tokens_per_tile;
      t.count = min(a.tokens_per_tile, a.num_queries - t.first);
      t.shift = a.first_position, t.first_key = 0;
    }
    t.keys = {t.keys_at(a, t.first).begin, t.keys_at(a, t.first + t.count - 1).end};
    t.select_steps = 0;
    const BlockSelection& choice = a.selection;
    if (choice.block_idx == nullptr) return t;
    const int current = a.by_sel_block.quotient(max(t.shift + t.first + t.count - 1, 0));
    const int free_blocks = current + 1 - choice.num_local;  // candidates are below this
    if (current + 1 > choice.top_n && choice.top_n > choice.num_initial + choice.num_local)
      t.select_steps = (free_blocks * a.strides + kSelectKeys - 1) / kSelectKeys;
    return t;
  }
  /// The CTA's tile, found anew wherever it is asked for: that takes fewer registers.
  __device__ static IntervalTile again(const IntervalArguments& a) {
    return of(a, anew(static_cast<int>(blockIdx.x)));
  }
  __device__ Span keys_at(const IntervalArguments& a, int token) const {
    return keys_of(a.rule, shift + token, a.num_keys, a.by_stride);
  }
  __device__ int steps() const {
    return keys.end <= keys.begin ? 0 : (keys.end - keys.begin + kTileKeys - 1) / kTileKeys;
  }
  __device__ int token_of(const IntervalArguments& a, int row) const {
    return first + min(a.by_row_group.quotient(row), count - 1);
  }
  __device__ IntervalRow row(const IntervalArguments& a, int row) const {
    const int head = a.by_row_group.remainder(row);
    IntervalRow one;
    one.used = head < a.heads && a.by_row_group.quotient(row) < count;
    one.token = token_of(a, row);
    one.head = first_head + min(head, a.heads - 1);
    one.place = (int64_t(batch) * a.num_queries + one.token) * a.num_heads + one.head;
    one.keys = keys_at(a, one.token);
    return one;
  }
};

/// The first row of this thread in the tile; the second is 8 rows on.
__device__ inline int first_row_of_thread() {
  return static_cast<int>(threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4);
}

/// Keys of the two rows of a thread.
struct IntervalMask {
  Span keys[2];
  Span any;    // keys that any of the warp's rows may attend
  Span inner;  // keys that all of them attend

  __device__ IntervalMask(const IntervalArguments& a, const IntervalTile& t) {
    const int first_row = threadIdx.x / 32 * 16;
    keys[0] = t.keys_at(a, t.token_of(a, first_row_of_thread()));
    keys[1] = t.keys_at(a, t.token_of(a, first_row_of_thread() + 8));
    const Span low = t.keys_at(a, t.token_of(a, first_row)),
               high = t.keys_at(a, t.token_of(a, first_row + 15));
    any = {low.begin, high.end};
    inner = {high.begin, low.end};
  }
  /// Whether the warp has to do with any of 64 keys.
  __device__ bool meets(int first) const {
    return first < any.end && first + kTileKeys > any.begin;
  }
  /// Logits of the 64 keys from `first` on that a row does not attend become -inf.
  __device__ void apply(int first, float (&scores)[8][4]) const {
    if (first >= inner.begin && first + kTileKeys <= inner.end) return;  // the same for a warp
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = first + j * 8 + (threadIdx.x % 4) * 2 + i % 2;
        if (key < keys[i / 2].begin || key >= keys[i / 2].end) scores[j][i] = -INFINITY;
      }
  }
};

}  // namespace nsa::kernels::sm80

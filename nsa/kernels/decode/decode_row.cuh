// Arguments of a decode step, and the work of a block of threads.
#pragma once
#include "nsa/kernels/common/mma.cuh"
#include "nsa/kernels/decode/decode_launch.h"

namespace nsa::kernels::portable {

constexpr int kMostRanks = 16;
enum DecodeBranch { kCmp, kSel, kWin };

/// Of 0 <= x < 2^31, without the extension of its sign.
__device__ __forceinline__ int quotient(const Divisor& by, int x) {
  return static_cast<int>((uint64_t{static_cast<uint32_t>(x)} * by.multiplier) >> by.shift);
}
__device__ __forceinline__ int remainder(const Divisor& by, int x) {
  return x - quotient(by, x) * static_cast<int>(by.value);
}

struct DecodeArguments {
  DecodeAttention p;
  DecodePlan plan;
  Divisor kv_heads, tokens, unit, units_of_blocks, stride, heads_of_gate, slots, source_slots,
      selected_page, compressed_page;
  int group, blocks_of_unit;
  int key_bytes, value_bytes;  // of a token's rows of all KV heads
  int halo;                    // blocks before those of a rank that count in its first unit
  float scale_log2;

#if NSA_CODE_OF_SM80
  __device__ int ranks() const { return 1; }  // no clusters
  __device__ int log_ranks() const { return 0; }
#else
  __device__ int ranks() const { return plan.ranks; }
  __device__ int log_ranks() const { return plan.log_ranks; }
#endif
};

inline DecodeArguments decode_arguments(const DecodeAttention& p, const DecodePlan& plan) {
  DecodeArguments a;
  a.p = p;
  a.plan = plan;
  a.group = p.num_heads / p.num_kv_heads;
  a.blocks_of_unit = p.sel_block_size / p.block_stride;
  a.key_bytes = p.num_kv_heads * p.qk_head_dim * 2;
  a.value_bytes = p.num_kv_heads * p.v_head_dim * 2;
  a.halo = p.block_size / p.block_stride - 1;
  a.kv_heads = Divisor(p.num_kv_heads);
  a.tokens = Divisor(p.tokens);
  a.unit = Divisor(p.sel_block_size);
  a.units_of_blocks = Divisor(a.blocks_of_unit);
  a.stride = Divisor(p.block_stride);
  a.heads_of_gate = Divisor(p.num_heads / p.gate_heads);
  a.slots = Divisor(p.window.num_slots);
  a.source_slots = Divisor(p.appends ? p.append.source.num_slots : 1);
  a.selected_page = Divisor(p.selected.page_size);
  a.compressed_page = Divisor(p.compressed.page_size);
  a.scale_log2 = p.scale * 1.4426950408889634f;
  return a;
}

/// Which (new token, KV head) a block of threads works for, and as which rank.
struct DecodePair {
  int rank, kv_head;
  int batch;         // row of the outputs: [sequences of the launch, tokens]
  int entry, token;  // the two
  __device__ explicit DecodePair(const DecodeArguments& a) {
    const int pair = blockIdx.x >> a.log_ranks();
    rank = blockIdx.x & (a.ranks() - 1);
    batch = quotient(a.kv_heads, pair);
    kv_head = pair - batch * a.p.num_kv_heads;
    entry = quotient(a.tokens, batch);
    token = batch - entry * a.p.tokens;
    if (a.p.order == nullptr) return;
    entry = a.p.order[entry];
    batch = entry * a.p.tokens + token;
  }
};

/// The row of a block of threads, and its rank's share.
struct DecodeRow : DecodePair {
  int t;
  int64_t sequence;
  int current;         // selection block ("unit") of t
  int num_blocks;      // visible compressed blocks
  int block0, block1;  // those of this rank
  __device__ DecodeRow(const DecodeArguments& a, const DecodePair& pair, int64_t its_sequence)
      : DecodePair(pair), sequence(its_sequence) {
    const DecodeAttention& p = a.p;
    t = static_cast<int>(p.num_tokens[sequence]) + token - (p.appends ? 0 : p.tokens);
    current = quotient(a.unit, t);
    num_blocks = blocks_of(a, t);
    block0 = min(num_blocks, unit0(a) * a.blocks_of_unit);
    block1 = min(num_blocks, unit1(a) * a.blocks_of_unit);
  }

  /// Compressed blocks visible at a position.
  __device__ static int blocks_of(const DecodeArguments& a, int position) {
    const int since = position + 1 - a.p.block_size;  // tokens behind the first block
    return since < 0 ? 0 : quotient(a.stride, since) + 1;
  }
  /// Positions of the first and the last new token of the sequence.
  __device__ int first_new() const { return t - token; }
  __device__ int last_new(const DecodeAttention& p) const { return first_new() + p.tokens - 1; }

  // Cheap, and needed in the middle of a launch only: not kept in registers until then.
  __device__ int num_initial(const DecodeAttention& p) const {  // forced at the start
    return min(p.num_initial, current + 1);
  }
  __device__ int first_local(const DecodeAttention& p) const {  // from here on forced
    return max(num_initial(p), current - p.num_local + 1);
  }
  __device__ int places(const DecodeAttention& p) const {  // chosen by score
    return min(p.top_n, current + 1) - num_initial(p) - (current + 1 - first_local(p));
  }
  /// The rank that attends the newest token in the selected branch.
  __device__ int newest_owner(const DecodeArguments& a, int tile) const {
    const int behind = num_initial(a.p) + places(a.p) - first_local(a.p);  // units not chosen: < 0
    return (behind * a.p.sel_block_size + t) / tile & (a.ranks() - 1);
  }
  __device__ int num_window(const DecodeAttention& p) const { return min(p.window_size, t + 1); }

  __device__ int first_unit(const DecodeArguments& a, int of_rank) const {
    return of_rank * (current + 1) >> a.log_ranks();
  }
  /// Units whose compressed blocks are this rank's: unit0 to unit1 - 1.
  __device__ int unit0(const DecodeArguments& a) const { return first_unit(a, rank); }
  __device__ int unit1(const DecodeArguments& a) const { return first_unit(a, rank + 1); }
  /// Where the last compressed block ends, as tokens before t; of no block more than any number of
  /// new tokens.
  __device__ int since_block(const DecodeArguments& a) const {
    const int since = t + 1 - a.p.block_size;
    return since < 0 ? kMostNewTokens : remainder(a.stride, since);
  }
  /// Whether it ends with a new token up to t: with how many tokens a stride has at least, only
  /// one.
  __device__ bool makes_block(const DecodeArguments& a) const { return since_block(a) <= token; }
  /// The rank of a unit that is one of the last.
  __device__ int owner(const DecodeArguments& a, int of_unit) const {
    int owner = a.ranks() - 1;
#pragma unroll 1
    while (first_unit(a, owner) > of_unit) --owner;
    return owner;
  }
  /// The rank of the first unit behind this rank's, where there is one.
  __device__ int next_owner(const DecodeArguments& a) const {
    int owner = rank + 1;
#pragma unroll 1
    while (first_unit(a, owner + 1) <= unit1(a)) ++owner;
    return owner;
  }

  __device__ const int64_t* pages(const PagedKv& cache) const {
    return cache.page_table + sequence * cache.pages_per_sequence;
  }
  __device__ int64_t page_row(const PagedKv& cache, const Divisor& page_size, int position) const {
    const int page = quotient(page_size, position);
    return pages(cache)[page] * cache.page_size + position - page * cache.page_size;
  }
};

}  // namespace nsa::kernels::portable

// What a launch of the selected branch in the order of keys passes to its kernel, and the work of a
// block of threads.
#pragma once
#include <algorithm>
#include <cstdint>

#include "nsa/kernels/interval/interval_attention.h"
#include "nsa/kernels/selected/selected_plan.h"

namespace nsa::kernels::portable {

/// What a launch for one set passes by value.
struct SelectedArguments {
  Strided q, k, v, d_out;
  const uint64_t* row_masks;
  const uint32_t* entries;
  const float2* stats;  // of tokens_of_batch tokens a sequence
  const SelectedItem* items;
  const int32_t* first_item;
  void* parts;
  float2* part_stats;
  float* slots;
  int* next_item;         // taken from the set
  int first_head, heads;  // first of the set, their number
  int first_token, tokens_of_set, num_queries, num_keys, num_heads, num_kv_heads, group_size;
  int tokens_of_batch;
  uint32_t group_inverse;  // 2^32 / G, rounded up
  int max_tiles, tiles, items_of_head;
  float scale, scale_log2;
};

/// Fills what follows from a problem of either pass and its plan.
template <class Problem>
SelectedArguments selected_arguments(const Problem& p, const SelectedPlan& plan, void* workspace,
                                     int set) {
  const auto at = [&](size_t offset) { return static_cast<char*>(workspace) + offset; };
  const int64_t first_head = int64_t{set} * plan.heads_of_set;
  const int group = p.num_heads / p.num_kv_heads;
  SelectedArguments a{};
  a.q = p.q, a.k = p.k, a.v = p.v;
  a.row_masks = reinterpret_cast<const uint64_t*>(at(plan.row_masks));
  a.entries = reinterpret_cast<const uint32_t*>(at(plan.entries));
  a.items = reinterpret_cast<const SelectedItem*>(at(plan.items)) + first_head * plan.items_of_head;
  a.first_item =
      reinterpret_cast<const int32_t*>(at(plan.first_item)) + first_head * (plan.tiles + 1);
  a.parts = at(plan.parts);
  a.part_stats = reinterpret_cast<float2*>(at(plan.part_stats));
  a.slots = reinterpret_cast<float*>(at(plan.slots));
  a.next_item = reinterpret_cast<int*>(at(plan.next_items)) + set;
  a.first_head = set / plan.chunk_sets * plan.heads_of_set;
  a.heads = std::min(plan.heads_of_set, plan.heads - a.first_head);
  a.first_token = set % plan.chunk_sets * plan.tokens_of_set();
  a.tokens_of_set = plan.tokens_of_set();
  a.num_queries = p.num_queries, a.num_keys = p.num_keys, a.num_heads = p.num_heads;
  a.num_kv_heads = p.num_kv_heads, a.group_size = group;
  a.group_inverse = static_cast<uint32_t>(((uint64_t{1} << 32) + group - 1) / group);
  a.max_tiles = plan.max_tiles_of_row, a.tiles = plan.tiles;
  a.items_of_head = plan.items_of_head;
  a.scale = p.scale, a.scale_log2 = p.scale * 1.4426950408889634f;
  return a;
}

/// A (sequence, KV head) and an item of it.
struct SelectedWork {
  int head_index, batch, kv_head;
  SelectedItem item;

  /// Items of a head, counted from the set's first.
  __device__ __forceinline__ static int count(const SelectedArguments& a, int head_of_set) {
    return a.first_item[int64_t(head_of_set) * (a.tiles + 1) + a.tiles];
  }
  __device__ __forceinline__ void read(const SelectedArguments& a, int head_of_set, int which) {
    item = a.items[int64_t(head_of_set) * a.items_of_head + which];
    head_index = a.first_head + head_of_set;
    batch = head_index / a.num_kv_heads;
    kv_head = head_index % a.num_kv_heads;
  }
  /// The one of this block of threads; false: none.
  __device__ __forceinline__ bool find(const SelectedArguments& a) {
    if (static_cast<int>(blockIdx.x) >= count(a, blockIdx.y)) return false;
    read(a, blockIdx.y, blockIdx.x);
    return true;
  }
  /// Row tiles of the item.
  __device__ __forceinline__ int steps(const SelectedArguments& a) const {
    return (item.count * a.group_size + 63) / 64;
  }
};

}  // namespace nsa::kernels::portable

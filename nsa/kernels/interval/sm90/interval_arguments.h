#pragma once
#include <cuda.h>

#include "nsa/kernels/common/divisor.h"
#include "nsa/kernels/interval/interval_attention.h"

namespace nsa::kernels::sm90 {

/// What a launch passes by value.
struct IntervalArguments {
  CUtensorMap q_map, k_map, v_map;
  Strided q, k, v;  // for plain_row
  void* out;
  float* lse;
  int num_queries, num_keys, num_heads, group_size, first_position;
  int row_group;        // rows a token takes in a tile: G, or the next power of two when blocks are
                        // chosen
  int tokens_per_tile;  // rows of a tile / row_group
  int tiles, units;     // tiles of a KV head of a sequence, of all of them
  bool apart;           // lists and sums of the selection pass have room of their own
  Divisor by_row_group, by_stride, by_all_heads, by_kv_heads;
  IntervalRule rule;
  float scale_log2;
  const int2* ranges;  // of tiles, or null
  int num_ranges, tokens_of_batch;
  int lanes_of_ranges;            // a power of two
  const DocumentTile* documents;  // [tiles], or null
  BlockSelection selection;       // with kSelect only
  Divisor by_sel_block;
  int strides, overlap;  // l' / d, and l / d - 1
};

}  // namespace nsa::kernels::sm90

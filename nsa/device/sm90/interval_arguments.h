#pragma once
#include <cuda.h>

#include "nsa/device/divisor.h"
#include "nsa/device/interval_attention.h"

namespace nsa::device::sm90 {

/// What a launch passes by value.
struct IntervalArguments {
  CUtensorMap q_map, k_map, v_map;
  Strided q, k, v;  // for plain_row
  void* out;
  float* lse;
  int num_queries, num_keys, num_heads, group_size, first_position;
  int row_group;        // rows a token takes in a tile: G, or the next power of two when blocks are
                        // chosen
  int tokens_per_tile;  // kRows / row_group
  Divisor by_row_group, by_stride;
  IntervalRule rule;
  float scale_log2;
  BlockSelection selection;  // with kSelect only
  Divisor by_sel_block;
  int strides, overlap;  // l' / d, and l / d - 1
};

}  // namespace nsa::device::sm90

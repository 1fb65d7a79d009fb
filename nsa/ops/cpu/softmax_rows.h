#pragma once
#include <cstdint>

#include "nsa/ops/cpu/panel_attention.h"
#include "nsa/ops/cpu/tiles/key_panels.h"

namespace nsa::cpu {

/// Where the results of the row (b, query, head) are.
struct RowResult {
  RowResult(const PanelAttention& result, const Sizes& sizes, int64_t b, int64_t query,
            int64_t head);
  float* out;  ///< [dv]
  float* lse;
  RowSoftmax* softmax;
};

/// Writes out = weighted / sum, lse and what the backward pass needs. A row that attends nothing
/// has 0 and -inf.
void finish_row(const SoftmaxSums& sums, bool attends, const float* weighted, int64_t dv,
                const RowResult& result);

/// Rows with weights of keys of which some have values that are not finite.
struct NonFiniteValues {
  PanelRows rows;
  const float* weights;  ///< [count * group, width], of key `first_key` on
  int64_t width;
  uint64_t bad;  ///< keys of the panel
  int64_t first_key;
};

/// Adds to out [rows of the tile, dv_row] what products left out: weight times value, where that
/// value is not finite and the row attends the key. No other row is touched.
void add_non_finite(const NonFiniteValues& values, const HeadRows& v, int64_t b, int64_t kv_head,
                    const Sizes& sizes, float* out);

}  // namespace nsa::cpu

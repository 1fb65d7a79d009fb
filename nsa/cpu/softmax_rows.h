#pragma once
#include <cstdint>

#include "nsa/cpu/key_panels.h"

namespace nsa::cpu {

/// Writes out = weighted / sum [dv] and returns the row's lse. A row that attends nothing: 0, -inf.
float finish_row(const SoftmaxSums& softmax, bool attends, const float* weighted, int64_t dv,
                 float* out);

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

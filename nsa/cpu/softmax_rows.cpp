#include "nsa/cpu/softmax_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace nsa::cpu {

float finish_row(const SoftmaxSums& softmax, bool attends, const float* weighted, int64_t dv,
                 float* out) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (!attends) {
    std::fill_n(out, dv, 0.0F);
    return -kInfinity;
  }
  // Every logit is -inf: the softmax is 0 / 0, which the running sum of zeros hides.
  const float sum =
      softmax.peak == -kInfinity ? std::numeric_limits<float>::quiet_NaN() : softmax.sum;
  const float inverse = 1.0F / sum;
  for (int64_t e = 0; e < dv; ++e) out[e] = weighted[e] * inverse;
  return static_cast<float>(softmax.peak + std::log(static_cast<double>(sum)));
}

void add_non_finite(const NonFiniteValues& values, const HeadRows& v, int64_t b, int64_t kv_head,
                    const Sizes& sizes, float* out) {
  std::vector<float> value(static_cast<size_t>(sizes.dv_row));
  for (uint64_t bad = values.bad; bad != 0; bad &= bad - 1) {
    const int key = std::countr_zero(bad);
    v.read(b, values.first_key + key, 1, kv_head, 1, value.data(), sizes.dv_row);
    for (int64_t i = 0; i < values.rows.count * sizes.group; ++i) {
      if ((values.rows.keys[i / sizes.group] >> key & 1) == 0) continue;
      const int64_t row = values.rows.queries[i / sizes.group] * sizes.group + i % sizes.group;
      const float weight = values.weights[i * values.width + key];
      for (int64_t e = 0; e < sizes.dv; ++e) {
        const float x = value[static_cast<size_t>(e)];
        if (!std::isfinite(x)) out[row * sizes.dv_row + e] += weight * x;
      }
    }
  }
}

}  // namespace nsa::cpu

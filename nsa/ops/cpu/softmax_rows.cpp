#include "nsa/ops/cpu/softmax_rows.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace nsa::cpu {

PanelAttention empty_attention(const at::Tensor& q, const at::Tensor& v) {
  const auto floats = q.options().dtype(at::kFloat);
  return {at::empty({q.size(0), q.size(1), q.size(2), v.size(3)}, floats),
          at::empty({q.size(0), q.size(1), q.size(2)}, floats),
          at::empty({q.size(0), q.size(1), q.size(2), 2}, floats)};
}

RowResult::RowResult(const PanelAttention& result, const Sizes& sizes, int64_t b, int64_t query,
                     int64_t head) {
  const int64_t row = (b * sizes.num_queries + query) * sizes.group * sizes.num_kv_heads + head;
  out = result.out.mutable_data_ptr<float>() + row * sizes.dv;
  lse = result.lse.mutable_data_ptr<float>() + row;
  softmax = reinterpret_cast<RowSoftmax*>(result.softmax.mutable_data_ptr<float>()) + row;
}

void finish_row(const SoftmaxSums& sums, bool attends, const float* weighted, int64_t dv,
                const RowResult& result) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  if (!attends) {
    std::fill_n(result.out, dv, 0.0F);
    *result.lse = -kInfinity;
    *result.softmax = {0, 0};
    return;
  }
  // Where every logit is -inf the softmax is 0 / 0, which sums of zeros hide.
  const float sum = sums.peak == -kInfinity ? kNaN : sums.sum;
  const float inverse = 1.0F / sum;
  for (int64_t e = 0; e < dv; ++e) result.out[e] = weighted[e] * inverse;
  *result.lse = static_cast<float>(sums.peak + std::log(static_cast<double>(sum)));
  *result.softmax = {sums.peak, inverse};
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

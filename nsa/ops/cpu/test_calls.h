#pragma once
// Calls of the CPU kernels for tests: random inputs, the oracle on them, and the plain computation
// in fp32 whose error bounds theirs (docs/semantics.md, Numerics).
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "nsa/ops/common/oracle_util.h"
#include "nsa/ops/cpu/panel_attention.h"
#include "nsa/reference/reference.h"

namespace nsa::cpu {

struct CallSizes {
  int64_t batch = 1, tokens = 1, kv_heads = 1, group = 1, dk = 16, dv = 16;
};

struct Call {
  at::Tensor q, k, v;
  KeyMask mask;
  double scale() const { return 1.0 / std::sqrt(static_cast<double>(q.size(3))); }
};

inline Call random_call(const CallSizes& s, int64_t keys, const KeyMask& mask,
                        at::ScalarType type = at::kFloat) {
  const at::Tensor v = at::randn({s.batch, keys, s.kv_heads, s.dv}, type);
  return {at::randn({s.batch, s.tokens, s.kv_heads * s.group, s.dk}, type),
          at::randn({s.batch, keys, s.kv_heads, s.dk}, type),
          // Sums of one value a row may cancel; errors relative to them would be chance.
          s.dv == 1 ? v.abs() : v, mask};
}

inline reference::AttendedKeys attended_by(const KeyMask& mask, int64_t keys) {
  if (mask.kind == KeyMask::kRanges) {
    const auto ranges = ref_of<int32_t>(mask.ranges);
    return [ranges, &mask](int64_t b, int64_t t, int64_t head) {
      return reference::union_of_ranges(ranges.row(b, t, head), t + mask.first_position);
    };
  }
  return [&mask, keys](int64_t, int64_t query, int64_t) {
    const int64_t t = query + mask.first_position;
    std::vector<int64_t> found;
    for (int64_t i = 0; i < keys; ++i) {
      const bool in_window = i <= t && i > t - mask.extent;
      const bool visible = i * mask.stride + mask.extent - 1 <= t;
      if (mask.kind == KeyMask::kWindow ? in_window : visible) found.push_back(i);
    }
    return found;
  };
}

inline reference::Tensor<double> exact(const at::Tensor& x) {
  return ref_of<double>(x.to(at::kDouble));
}

/// Plain operators in `type`, differentiable: what kernels may differ from the oracle by at most
/// twice.
inline std::pair<at::Tensor, at::Tensor> plain_attention(const Call& call,
                                                         at::ScalarType type = at::kFloat) {
  const int64_t tokens = call.q.size(1), keys = call.k.size(1), heads = call.k.size(2);
  const auto grouped = [&](const at::Tensor& x) {  // [B, S, H, D] -> [B, Hkv, H / Hkv, S, D]
    return x.to(type)
        .unflatten(2, at::IntArrayRef{heads, x.size(2) / heads})
        .permute({0, 2, 3, 1, 4});
  };
  const at::Tensor allowed = call.mask.allowed(0, tokens, {0, keys}, at::kCPU)
                                 .expand({call.q.size(0), heads, 1, tokens, keys});
  const at::Tensor empty = allowed.any(-1, true).logical_not();
  const at::Tensor logits =
      at::matmul(grouped(call.q), grouped(call.k).transpose(-1, -2))
          .mul(call.scale())
          .masked_fill(allowed.logical_not(), -std::numeric_limits<double>::infinity())
          .masked_fill(empty, 0.0);
  const at::Tensor p = at::softmax(logits, -1).masked_fill(allowed.logical_not(), 0.0);
  const auto ungrouped = [](const at::Tensor& x) {
    return x.permute({0, 3, 1, 2, 4}).flatten(2, 3);
  };
  const at::Tensor lse = at::logsumexp(logits, {-1}, true)
                             .masked_fill(empty, -std::numeric_limits<double>::infinity());
  return {ungrouped(at::matmul(p, grouped(call.v))), ungrouped(lse).squeeze(-1)};
}

/// The largest error of a row, relative to the row's largest value, but to `floor` of the tensor's
/// largest at least. Infinity where only one side is finite, or infinities differ.
inline double row_error(const at::Tensor& have, const at::Tensor& want, double floor) {
  if (want.numel() == 0) return 0;
  const at::Tensor x = have.to(at::kDouble), y = want.to(at::kDouble);
  const at::Tensor same = x.eq(y).logical_or(x.isnan().logical_and(y.isnan()));
  const at::Tensor size = at::nan_to_num(y.abs(), 0, 0, 0);
  const at::Tensor rows = size.amax(-1, true).clamp_min(floor * size.max().item<double>());
  const at::Tensor error = (x - y).abs().masked_fill(same, 0.0).div(rows.clamp_min(1e-300));
  return at::nan_to_num(error.masked_fill(same, 0.0), HUGE_VAL, HUGE_VAL, HUGE_VAL)
      .max()
      .item<double>();
}

/// The error of `have` as a share of what is allowed: twice the error of `plain`, or one unit in
/// the last place (docs/tolerances.md, Below fp64).
inline double share_of_allowance(const at::Tensor& have, const at::Tensor& plain,
                                 const at::Tensor& want, double floor = 0) {
  const double limit =
      std::max(2 * row_error(plain, want, floor), double{std::numeric_limits<float>::epsilon()});
  return row_error(have, want, floor) / limit;
}

inline void expect_as_exact_as(const std::string& name, const at::Tensor& have,
                               const at::Tensor& plain, const at::Tensor& want, double floor = 0) {
  ASSERT_EQ(have.sizes(), want.sizes()) << name;
  EXPECT_LE(share_of_allowance(have, plain, want, floor), 1) << name;
}

/// lse is off by what the logits are off: eps * sqrt(dk) * |q| |k| * scale (docs/semantics.md,
/// Selection), or by twice the error of `plain`.
inline void expect_lse(const Call& call, const at::Tensor& have, const at::Tensor& plain,
                       const at::Tensor& want) {
  ASSERT_EQ(have.sizes(), want.sizes());
  if (want.numel() == 0) return;
  const auto error = [&](const at::Tensor& x) {
    return (x.to(at::kDouble) - want).abs().masked_fill(x.eq(want), 0.0).max().item<double>();
  };
  const auto longest = [](const at::Tensor& x) {
    return x.numel() == 0 ? 0.0 : x.to(at::kDouble).norm(2, {-1}).max().item<double>();
  };
  const double logits = std::numeric_limits<float>::epsilon() *
                        std::sqrt(static_cast<double>(call.q.size(3))) * longest(call.q) *
                        longest(call.k) * call.scale();
  EXPECT_LE(error(have), std::max(2 * error(plain), logits)) << "lse";
}

}  // namespace nsa::cpu

#include "nsa/train/loop/gate_stats.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace nsa::train {
namespace {

TEST(GateStats, ByHand) {
  // One layer, two tokens: gates (1, 0, 0) and (0.5, 0.5, 0). Entropies 0 and ln 2.
  const at::Tensor gates =
      at::tensor({1.0, 0.0, 0.0, 0.5, 0.5, 0.0}, at::kDouble).view({1, 2, 1, 3});
  const at::Tensor flat = at::full({1, 2, 1, 3}, 1.0 / 3, at::kDouble);
  const at::Tensor values = reduce_gates({gates, flat});
  const GateStats stats = gate_stats(values.data_ptr<double>());
  EXPECT_NEAR(stats.cmp, (0.75 + 1.0 / 3) / 2, 1e-12);
  EXPECT_NEAR(stats.sel, (0.25 + 1.0 / 3) / 2, 1e-12);
  EXPECT_NEAR(stats.layer_entropy_min, std::log(2.0) / 2, 1e-12);
  EXPECT_NEAR(stats.layer_entropy_max, std::log(3.0), 1e-12);
  EXPECT_NEAR(stats.entropy, (std::log(2.0) / 2 + std::log(3.0)) / 2, 1e-12);
  EXPECT_NEAR(stats.layer_spread_min, 0, 1e-12);
}

}  // namespace
}  // namespace nsa::train

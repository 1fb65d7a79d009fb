// The optimizer against hand-computed values.
#include "nsa/train/loop/adamw.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace nsa::train {
namespace {

using ::testing::HasSubstr;

at::Tensor parameter_with_gradient(const std::vector<double>& values,
                                   const std::vector<double>& gradient, at::IntArrayRef shape) {
  at::Tensor p = at::tensor(values, at::kDouble).view(shape).clone().requires_grad_(true);
  p.mutable_grad() = at::tensor(gradient, at::kDouble).view(shape).clone();
  return p;
}

TEST(AdamW, OneStepByHand) {
  // g = 0.6: m = 0.06, v = 0.018; corrected by 1-0.9 and 1-0.95 they are 0.6 and 0.36, so the step
  // is lr * 0.6/(0.6+eps). The matrix also loses lr * wd * p; the vector does not.
  const at::Tensor matrix = parameter_with_gradient({2.0}, {0.6}, {1, 1});
  const at::Tensor vector = parameter_with_gradient({2.0}, {-0.6}, {1});
  AdamW optimizer({matrix, vector}, {.weight_decay = 0.5, .clip_norm = 0});
  const at::Tensor norm = optimizer.step(0.1);
  EXPECT_NEAR(matrix.item<double>(), 2.0 - 0.1 * 0.5 * 2.0 - 0.1, 1e-7);
  EXPECT_NEAR(vector.item<double>(), 2.0 + 0.1, 1e-7);
  EXPECT_NEAR(norm.item<double>(), 0.6 * std::sqrt(2.0), 1e-12);
  EXPECT_FALSE(matrix.grad().defined());
  EXPECT_EQ(optimizer.applied_learning_rate(), 0.1);
}

TEST(AdamW, SecondStepByHandWithClipping) {
  // Gradient norms 5 and 10 are clipped to 1, so g = 0.6, then g = -0.6 in the first place.
  const at::Tensor p = parameter_with_gradient({1.0, 0.0}, {3.0, 4.0}, {2});
  AdamW optimizer({p}, {.weight_decay = 0, .clip_norm = 1.0});
  EXPECT_NEAR(optimizer.step(0.1).item<double>(), 5.0, 1e-12);
  EXPECT_NEAR(p[0].item<double>(), 0.9, 1e-6);
  p.mutable_grad() = at::tensor({-6.0, 8.0}, at::kDouble);
  EXPECT_NEAR(optimizer.step(0.1).item<double>(), 10.0, 1e-12);
  // m = 0.9*0.06 - 0.06 = -0.006, corrected by 1-0.81: -0.0315789; v = 0.0351 / (1-0.9025) = 0.36.
  EXPECT_NEAR(p[0].item<double>(), 0.9 + 0.1 * (0.006 / 0.19) / 0.6, 1e-6);
}

TEST(AdamW, NonFiniteGradientsChangeNothing) {
  const at::Tensor p = parameter_with_gradient({1.0, 2.0}, {0.1, std::nan("")}, {2});
  AdamW optimizer({p}, {});
  EXPECT_TRUE(std::isnan(optimizer.step(0.1).item<double>()));
  EXPECT_TRUE(at::equal(p, at::tensor({1.0, 2.0}, at::kDouble)));
  p.mutable_grad() = at::tensor({0.6, 0.0}, at::kDouble);
  optimizer.step(0.1);  // counts as the first step, moments are untouched
  EXPECT_NEAR(p[0].item<double>(), 0.9, 1e-6);
}

TEST(AdamW, AnIdleUpdateChangesNothing) {
  const at::Tensor p = parameter_with_gradient({1.0, 2.0}, {0.5, 0.25}, {1, 2});
  const at::Tensor q = p.detach().clone().requires_grad_(true);
  AdamW optimizer({p}, {}), other({q}, {});
  const auto update = [](AdamW& o, const at::Tensor& weight, double gradient, bool idle) {
    weight.mutable_grad() = at::full({1, 2}, gradient, at::kDouble);
    o.set_learning_rate(0.1);
    return o.update(at::full({}, idle, at::kBool)).item<double>();
  };
  update(optimizer, p, 0.5, false);
  update(other, q, 0.5, false);
  EXPECT_EQ(update(optimizer, p, 0, true), 0);
  EXPECT_TRUE(at::equal(p, q)) << "no decay of weights";
  update(optimizer, p, 0.25, false);
  update(other, q, 0.25, false);
  EXPECT_TRUE(at::equal(p, q)) << "no decay of moments";
  EXPECT_EQ(optimizer.update_count().item<float>(), 2);
}

TEST(AdamW, NamesAParameterWithoutGradient) {
  const at::Tensor p = at::ones({2}).requires_grad_(true);
  AdamW optimizer({p}, {});
  try {
    optimizer.step(0.1);
    FAIL();
  } catch (const c10::Error& e) {
    EXPECT_THAT(e.what(),
                HasSubstr("nsa::AdamW: parameter 0 of shape [2] must have a gradient, got none"));
  }
}

}  // namespace
}  // namespace nsa::train

#include "nsa/reference/stages/gate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "nsa/reference/stages/gate_mlp.h"
#include "nsa/reference/stages/linear.h"
#include "nsa/reference/test_inputs.h"

namespace nsa::reference {
namespace {

TEST(Gate, Activations) {
  const std::vector<double> logits = {0, std::log(3.0), -std::log(3.0)};
  const std::vector<double> s = activate(Gate::kSigmoid, logits);  // 1/2, 3/4, 1/4
  EXPECT_DOUBLE_EQ(s[0], 0.5);
  EXPECT_DOUBLE_EQ(s[1], 0.75);
  EXPECT_DOUBLE_EQ(s[2], 0.25);
  const std::vector<double> m = activate(Gate::kSoftmax, logits);  // 1, 3, 1/3 over 13/3
  EXPECT_DOUBLE_EQ(m[0], 3.0 / 13);
  EXPECT_DOUBLE_EQ(m[1], 9.0 / 13);
  EXPECT_DOUBLE_EQ(m[2], 1.0 / 13);
  EXPECT_EQ(activate(Gate::kNone, logits), logits);
}

TEST(Gate, ActivationsOfHugeLogits) {
  EXPECT_EQ(activate(Gate::kSigmoid, std::vector<double>{1e4, -1e4, 0}),
            (std::vector<double>{1, 0, 0.5}));
  EXPECT_EQ(activate(Gate::kSoftmax, std::vector<double>{1e4, -1e4, 1e4}),
            (std::vector<double>{0.5, 0, 0.5}));
}

TEST(Gate, CombineInTheOrderCmpSelWin) {
  // Gates (1, 10, 100) on outputs (1, 2, 3): 1 + 20 + 300 = 321.
  Config c;
  c.num_heads = c.num_kv_heads = 1, c.gate = Gate::kNone;
  const auto scalar = [](double x) { return Tensor<double>({1, 1, 1, 1}, {x}); };
  EXPECT_EQ(combine(c, Tensor<double>({1, 1, 1, 3}, {1, 10, 100}), scalar(1), scalar(2), scalar(3))
                .values(),
            std::vector<double>{321});
}

TEST(Gate, GroupGatesServeTheHeadsOfTheGroup) {
  // Hq = 4, Hkv = 2; gate rows (1,0,0) and (0,0,1): heads 0, 1 show cmp, heads 2, 3 win.
  Config c;
  c.num_heads = 4, c.num_kv_heads = 2, c.gate = Gate::kNone;
  const Tensor<double> o({1, 1, 4, 1}, {1, 2, 3, 4}), zero({1, 1, 4, 1}), win({1, 1, 4, 1}, 9.0);
  EXPECT_EQ(combine(c, Tensor<double>({1, 1, 2, 3}, {1, 0, 0, 0, 0, 1}), o, zero, win).values(),
            (std::vector<double>{1, 2, 9, 9}));
}

TEST(Gate, Errors) {
  Config c;
  c.num_heads = 4, c.num_kv_heads = 2;
  const Tensor<double> o({1, 1, 4, 1});
  EXPECT_EQ(error_of([&] { combine(c, Tensor<double>({1, 1, 3, 3}), o, o, o); }),
            "nsa::reference::combine: gates must be [1, 1, 4, 3], got [1, 1, 3, 3]");
}

TEST(GateMlp, ByHand) {
  // Hq = 2, one group, dk = 2: mean of (1, 0) and (3, 4) = (2, 2). w1 = (1, 0.5), b1 = -3: hidden
  // 0; second hidden: w1 = (1, 1), b1 = -1: 3. SiLU: 0 and s = 3 / (1 + e^-3). w2 rows (1, 1), (1,
  // 0), (0, 2), b2 (0, 5, -1): logits s, 5, 2s - 1.
  GateMlpWeights w;
  w.w1 = Tensor<double>({2, 2}, {1, 0.5, 1, 1}), w.b1 = Tensor<double>({2}, {-3, -1});
  w.w2 = Tensor<double>({3, 2}, {1, 1, 1, 0, 0, 2}), w.b2 = Tensor<double>({3}, {0, 5, -1});
  const Tensor<double> logits = gate_logits(Tensor<double>({1, 1, 2, 2}, {1, 0, 3, 4}), 1, w);
  const double s = 3 / (1 + std::exp(-3.0));
  EXPECT_DOUBLE_EQ(logits(0, 0, 0, 0), s);
  EXPECT_DOUBLE_EQ(logits(0, 0, 0, 1), 5);
  EXPECT_DOUBLE_EQ(logits(0, 0, 0, 2), 2 * s - 1);
  EXPECT_EQ(error_of([&] { gate_logits(Tensor<double>({1, 1, 3, 2}), 2, w); }),
            "nsa::reference::gate_logits: num_kv_heads must be a divisor of num_heads=3, got 2");
}

TEST(Linear, EveryOutputHasItsOwnRow) {
  // w[o] = (o, 1), b[o] = 100, x = (10, 1): 10 o + 101, for 1 to 9 outputs.
  for (int64_t outputs = 1; outputs <= 9; ++outputs) {
    Tensor<double> w({outputs, 2}, 1.0);
    for (int64_t o = 0; o < outputs; ++o) w(o, 0) = static_cast<double>(o);
    const auto y = linear(w, Tensor<double>({outputs}, 100.0), std::vector<double>{10, 1});
    ASSERT_EQ(y.size(), static_cast<size_t>(outputs));
    for (size_t o = 0; o < y.size(); ++o) EXPECT_EQ(y[o], 10 * static_cast<double>(o) + 101);
  }
}

TEST(Linear, SigmoidAndSilu) {
  EXPECT_EQ(sigmoid(0), 0.5);
  EXPECT_EQ(sigmoid(800), 1);
  EXPECT_EQ(sigmoid(-800), 0);
  EXPECT_DOUBLE_EQ(silu(std::log(3.0)), 0.75 * std::log(3.0));
  for (const double x : {-3.0, 0.0, 0.5, 4.0})
    EXPECT_NEAR(silu_derivative(x), (silu(x + 1e-5) - silu(x - 1e-5)) / 2e-5, 1e-9);
}

}  // namespace
}  // namespace nsa::reference

// Gradients against central differences, every element of every input.
#include "nsa/reference/passes/backward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "nsa/reference/passes/forward.h"
#include "nsa/reference/passes/varlen.h"
#include "nsa/reference/stages/gate_mlp.h"
#include "nsa/reference/test_inputs.h"

namespace nsa::reference {
namespace {

double dot(const Tensor<double>& x, const Tensor<double>& y) {
  double sum = 0;
  for (size_t i = 0; i < x.values().size(); ++i) sum += x.values()[i] * y.values()[i];
  return sum;
}

/// (loss(x + h) - loss(x - h)) / 2h for every element of `x`, against `gradient`. The error of the
/// difference is about h^2 = 1e-10 and eps / h = 1e-11 of the loss.
template <class Loss>
void expect_gradient(const std::string& name, Tensor<double>& x, const Tensor<double>& gradient,
                     const Loss& loss) {
  ASSERT_EQ(gradient.shape(), x.shape()) << name;
  constexpr double kStep = 1e-5;
  double largest = 0;
  for (size_t i = 0; i < x.values().size(); ++i) {
    double& value = x.values()[i];
    const double before = value;
    value = before + kStep;
    const double up = loss();
    value = before - kStep;
    const double down = loss();
    value = before;
    EXPECT_NEAR(gradient.values()[i], (up - down) / (2 * kStep), 2e-8) << name << " " << i;
    largest = std::max(largest, std::abs(gradient.values()[i]));
  }
  EXPECT_GT(largest, 1e-3) << name << " has gradients near 0 only";
}

struct GradientMode {
  Phi phi;
  Rope rope;
  Gate gate;
  bool per_group;
  bool own_scales = false;
  RopePairs pairs = RopePairs::kInterleaved;
};

class Backward : public ::testing::TestWithParam<GradientMode> {};

TEST_P(Backward, EqualsCentralDifferences) {
  Config c = small_config();
  c.phi = GetParam().phi, c.rope = GetParam().rope, c.gate = GetParam().gate;
  c.rope_pairs = GetParam().pairs;
  if (GetParam().own_scales) c.scale_cmp = 1.5, c.scale_sel = 0.25, c.scale_win = 3;
  Inputs x = random_inputs(c, 1, 11, 31, GetParam().per_group);
  const Tensor<double> d_o = Random(32).tensor({1, 11, 4, 3});
  Given fixed;  // the selection is detached: it stays what it is at x
  fixed.block_idx = forward(c, x).block_idx;
  const Inputs d = backward(c, x, d_o);
  const auto loss = [&] { return dot(forward(c, x, fixed).o, d_o); };
  const std::pair<const char*, Tensor<double> Inputs::*> inputs[] = {
      {"q", &Inputs::q},
      {"k_cmp_src", &Inputs::k_cmp_src},
      {"v_cmp_src", &Inputs::v_cmp_src},
      {"k_sel", &Inputs::k_sel},
      {"v_sel", &Inputs::v_sel},
      {"k_win", &Inputs::k_win},
      {"v_win", &Inputs::v_win},
      {"gates", &Inputs::gates}};
  for (const auto& [name, input] : inputs) expect_gradient(name, x.*input, d.*input, loss);
  const std::pair<const char*, Tensor<double> PhiWeights::*> weights[] = {
      {"conv", &PhiWeights::conv}, {"pe", &PhiWeights::pe}, {"w1", &PhiWeights::w1},
      {"b1", &PhiWeights::b1},     {"w2", &PhiWeights::w2}, {"b2", &PhiWeights::b2}};
  for (const auto phi : {&Inputs::phi_k, &Inputs::phi_v})
    for (const auto& [name, weight] : weights) {
      EXPECT_EQ((d.*phi.*weight).defined(), (x.*phi.*weight).defined()) << name;
      if (!(x.*phi.*weight).defined()) continue;
      // Equal shifts of all keys leave a softmax as it is: b2 of the keys has no gradient without
      // a rotation after pooling, which expect_gradient would call suspicious.
      if (phi == &Inputs::phi_k && weight == &PhiWeights::b2) continue;
      expect_gradient(name, x.*phi.*weight, d.*phi.*weight, loss);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Modes, Backward,
    ::testing::Values(GradientMode{Phi::kMean, Rope::kBeforePool, Gate::kNone, false},
                      GradientMode{Phi::kConv, Rope::kBeforePool, Gate::kSigmoid, true},
                      GradientMode{Phi::kMlp, Rope::kBeforePool, Gate::kSoftmax, false},
                      GradientMode{Phi::kMlp, Rope::kBlockStart, Gate::kSoftmax, true},
                      GradientMode{Phi::kConv, Rope::kNone, Gate::kNone, true},
                      GradientMode{Phi::kMean, Rope::kBeforePool, Gate::kSoftmax, false, true},
                      GradientMode{Phi::kMean, Rope::kBeforePool, Gate::kNone, false, false,
                                   RopePairs::kHalfSplit},
                      GradientMode{Phi::kMlp, Rope::kBlockStart, Gate::kNone, false, false,
                                   RopePairs::kHalfSplit}));

TEST(BackwardDetails, SharedShiftOfAllKeysHasNoGradient) {
  // See above: adding the same vector to every compressed key changes no softmax.
  Config c = small_config();
  c.phi = Phi::kMlp, c.rope = Rope::kBeforePool;
  const Inputs x = random_inputs(c, 1, 11, 33);
  const Inputs d = backward(c, x, Random(34).tensor({1, 11, 4, 3}));
  for (const double value : d.phi_k.b2.values()) EXPECT_NEAR(value, 0, 1e-14);
}

TEST(BackwardDetails, BlockStartRotationGivesTheKeyBiasAGradient) {
  Config c = small_config();
  c.phi = Phi::kMlp, c.rope = Rope::kBlockStart;
  Inputs x = random_inputs(c, 1, 11, 35);
  const Tensor<double> d_o = Random(36).tensor({1, 11, 4, 3});
  Given fixed;
  fixed.block_idx = forward(c, x).block_idx;
  const Inputs d = backward(c, x, d_o);
  expect_gradient("phi_k.b2", x.phi_k.b2, d.phi_k.b2,
                  [&] { return dot(forward(c, x, fixed).o, d_o); });
}

TEST(BackwardDetails, EmptyRowsAndUnattendedKeysHaveZeroGradients) {
  // S = l - 1: no compressed block, so nothing flows into the sources of compression.
  const Config c = small_config();
  const Inputs x = random_inputs(c, 2, 3, 37);
  const Inputs d = backward(c, x, Random(38).tensor({2, 3, 4, 3}));
  for (const double value : d.k_cmp_src.values()) EXPECT_EQ(value, 0.0);
  for (const double value : d.v_cmp_src.values()) EXPECT_EQ(value, 0.0);
  for (const double value : d.q.values()) EXPECT_TRUE(std::isfinite(value));
}

TEST(BackwardDetails, WithoutAWindowOnlyItsGateHasAGradient) {
  // t = 0, one token, l = 4: no compressed block, no window; o = g_sel v_sel. Logits 0 give gates
  // of 1/3, the window's among them; d g_sel = v . d_o = a, so the softmax gives -a/9, 2a/9, -a/9.
  Config c = small_config();
  c.window = 0, c.gate = Gate::kSoftmax;
  Inputs x = random_inputs(c, 1, 1, 45);
  for (double& logit : x.gates.values()) logit = 0;
  const Tensor<double> d_o({1, 1, 4, 3}, 1.0);
  const Outputs out = forward(c, x);
  const Inputs d = backward(c, x, d_o);
  for (int64_t h = 0; h < 4; ++h) {
    double a = 0;
    for (int64_t e = 0; e < 3; ++e) {
      EXPECT_DOUBLE_EQ(out.o(0, 0, h, e), x.v_sel(0, 0, h / 2, e) / 3);
      a += x.v_sel(0, 0, h / 2, e);
    }
    EXPECT_NEAR(d.gates(0, 0, h, 0), -a / 9, 1e-15);
    EXPECT_NEAR(d.gates(0, 0, h, 1), 2 * a / 9, 1e-15);
    EXPECT_NEAR(d.gates(0, 0, h, 2), -a / 9, 1e-15);
  }
  for (const auto& gradient : {d.k_win, d.v_win})
    for (const double value : gradient.values()) EXPECT_EQ(value, 0.0);
}

TEST(BackwardDetails, PoisonedTokenReachesOnlyRowsThatAttendIt) {
  // Token 2 leaves the window of t >= 7 (w = 5): gradients of later queries stay finite.
  const Config c = small_config();
  Inputs x = random_inputs(c, 1, 12, 39);
  for (double& value : x.v_win.row(0, 2)) value = std::nan("");
  const Inputs d = backward(c, x, Random(40).tensor({1, 12, 4, 3}));
  EXPECT_TRUE(std::isnan(d.q(0, 6, 0, 0)));
  for (int64_t t = 7; t < 12; ++t)
    for (const double value : d.q.row(0, t)) EXPECT_TRUE(std::isfinite(value)) << t;
}

TEST(BackwardDetails, VarlenSumsTheDocuments) {
  Config c = small_config();
  c.phi = Phi::kConv;
  const Inputs x = random_inputs(c, 1, 15, 41);
  Inputs packed = x;
  for (const auto member : {&Inputs::q, &Inputs::k_cmp_src, &Inputs::v_cmp_src, &Inputs::k_sel,
                            &Inputs::v_sel, &Inputs::k_win, &Inputs::v_win, &Inputs::gates}) {
    Shape shape = (x.*member).shape();
    shape.erase(shape.begin());
    packed.*member = Tensor<double>(shape, (x.*member).values());
  }
  const Tensor<double> d_o = Random(42).tensor({15, 4, 3});
  const Inputs d = backward_varlen(c, packed, {0, 6, 6, 15}, d_o);
  const auto part = [&](int64_t begin, int64_t end) {
    const auto values =
        std::vector<double>(d_o.values().begin() + begin * 12, d_o.values().begin() + end * 12);
    return backward(c, slice_tokens(x, begin, end), Tensor<double>({1, end - begin, 4, 3}, values));
  };
  const Inputs first = part(0, 6), second = part(6, 15);
  EXPECT_TRUE(std::ranges::equal(d.k_sel.row(5), first.k_sel.row(0, 5)));
  EXPECT_TRUE(std::ranges::equal(d.q.row(6), second.q.row(0, 0)));
  for (size_t i = 0; i < d.phi_k.conv.values().size(); ++i)
    EXPECT_EQ(d.phi_k.conv.values()[i],
              first.phi_k.conv.values()[i] + second.phi_k.conv.values()[i]);
}

TEST(BackwardDetails, GateMlp) {
  Random random(43);
  Tensor<double> q = random.tensor({1, 3, 4, 6});
  GateMlpWeights w{random.tensor({3, 6}), random.tensor({3}), random.tensor({3, 3}),
                   random.tensor({3})};
  const Tensor<double> d_logits = random.tensor({1, 3, 2, 3});
  const auto loss = [&] { return dot(gate_logits(q, 2, w), d_logits); };
  const GateMlpGradients d = gate_logits_backward(q, 2, w, d_logits);
  expect_gradient("q", q, d.q, loss);
  expect_gradient("w1", w.w1, d.weights.w1, loss);
  expect_gradient("b1", w.b1, d.weights.b1, loss);
  expect_gradient("w2", w.w2, d.weights.w2, loss);
  expect_gradient("b2", w.b2, d.weights.b2, loss);
}

TEST(BackwardDetails, Errors) {
  const Config c = small_config();
  EXPECT_EQ(
      error_of([&] { backward(c, random_inputs(c, 1, 2, 44), Tensor<double>({1, 2, 4, 4})); }),
      "nsa::reference::combine: d_o must be [1, 2, 4, 3], got [1, 2, 4, 4]");
}

}  // namespace
}  // namespace nsa::reference

// RoPE, compression and gates: hand-computed values, gradients, arguments.
#include <cmath>

#include "nsa/ops/common/test_util.h"
#include "nsa/ops/compress/compress.h"
#include "nsa/ops/gate/gate.h"
#include "nsa/ops/rope/rope.h"

namespace nsa {
namespace {

using ::testing::HasSubstr;

TEST(Rope, HandComputedAngles) {
  // D = 4, base 100: frequencies 1 and 1/10. Position 2 turns (1, 0) by 2 and (0, 1) by 0.2.
  const at::Tensor x = doubles({1, 0, 0, 1}, {1, 1, 4});
  const at::Tensor y = rope(x, at::full({1}, 2, at::kLong), 100.0);
  expect_near(y.flatten(), doubles({std::cos(2), std::sin(2), -std::sin(0.2), std::cos(0.2)}, {4}),
              1e-15);
}

TEST(Rope, HalfSplitPairsByHandAndAsPermutedInterleavedOnes) {
  // Pairs (x0, x2) and (x1, x3), turned by the same angles.
  const at::Tensor x = doubles({1, 0, 0, 1}, {1, 1, 4});
  const at::Tensor y = rope(x, at::full({1}, 2, at::kLong), 100.0, RopePairs::kHalfSplit);
  expect_near(y.flatten(), doubles({std::cos(2), -std::sin(0.2), std::sin(2), std::cos(0.2)}, {4}),
              1e-15);
  at::manual_seed(4);
  const at::Tensor z = at::randn({2, 5, 3, 8}, at::kDouble), t = at::arange(5);
  const at::Tensor order = at::tensor(std::vector<int64_t>{0, 4, 1, 5, 2, 6, 3, 7});
  for (const at::ScalarType type : {at::kDouble, at::kBFloat16}) {
    const at::Tensor have = rope(z.to(type), t, 1e4, RopePairs::kHalfSplit);
    const at::Tensor want = rope(z.to(type).index_select(-1, order), t);
    EXPECT_TRUE(at::equal(have.index_select(-1, order), want));
    EXPECT_TRUE(have.is_contiguous());
  }
  expect_gradients(
      [](const auto& in) {
        return std::vector{rope(in[0], at::arange(3), 1e4, RopePairs::kHalfSplit)};
      },
      {at::randn({3, 2, 4}, at::kDouble)});
}

TEST(Rope, ProductsDependOnDistanceOnly) {
  at::manual_seed(1);
  const at::Tensor q = at::randn({1, 1, 16}, at::kDouble), k = at::randn({1, 1, 16}, at::kDouble);
  const auto product = [&](int64_t i, int64_t j) {
    return (rope(q, at::full({1}, i, at::kLong)) * rope(k, at::full({1}, j, at::kLong)))
        .sum()
        .item<double>();
  };
  EXPECT_NEAR(product(5, 2), product(1005, 1002), 1e-10);
  EXPECT_GT(std::abs(product(5, 2) - product(5, 3)), 1e-6);
}

TEST(Rope, PositionsMayDifferPerSequenceAndHalfIsRoundedOnce) {
  at::manual_seed(2);
  const at::Tensor x = at::randn({2, 3, 2, 8}, at::kDouble);
  const at::Tensor positions = at::tensor(std::vector<int64_t>{0, 1, 2, 7, 8, 9}).reshape({2, 3});
  expect_near(rope(x, positions)[1], rope(x[1], positions[1]), 0);
  const at::Tensor half = x.to(at::kBFloat16);
  const at::Tensor want = rope(half.to(at::kFloat), positions).to(at::kBFloat16);
  EXPECT_TRUE(at::equal(rope(half, positions), want));
}

TEST(Rope, GradientsAndArguments) {
  at::manual_seed(3);
  expect_gradients([](const auto& x) { return std::vector{rope(x[0], at::arange(3))}; },
                   {at::randn({3, 2, 4}, at::kDouble)});
  const at::Tensor x = at::randn({3, 2, 4});
  EXPECT_THAT(error_of([&] { rope(x.narrow(2, 0, 3), at::arange(3)); }),
              HasSubstr("nsa::rope: D must be even, got 3"));
  EXPECT_THAT(error_of([&] { rope(x, at::arange(4)); }),
              HasSubstr("nsa::rope: positions must be [S] = [3], got shape [4]"));
  EXPECT_THAT(error_of([&] { rope(x, at::arange(3, at::kInt)); }),
              HasSubstr("nsa::rope: positions must be Long, got Int"));
  EXPECT_THAT(error_of([&] { rope(x, at::arange(3), 0.0); }),
              HasSubstr("nsa::rope: base must be positive and finite"));
}

NsaConfig tiny(Phi phi, RopeMode rope_mode) {
  NsaConfig c;
  c.num_heads = 2, c.num_kv_heads = 1, c.qk_head_dim = 2, c.v_head_dim = 1;
  c.block_size = 4, c.block_stride = 2, c.sel_block_size = 4;
  c.phi = phi, c.rope = rope_mode;
  return c;
}

TEST(Compress, MeanOfTwoBlocksLeavesTheTailAlone) {
  // l = 4, d = 2, S = 7: blocks [0,4) and [2,6); token 6 belongs to none.
  const NsaConfig c = tiny(Phi::kMean, RopeMode::kNone);
  at::Tensor v = at::arange(7, at::kDouble).reshape({1, 7, 1, 1});
  v[0][6].fill_(NAN);
  const auto [k_cmp, v_cmp] = compress(v, v, {}, {}, c);
  expect_near(v_cmp.flatten(), doubles({1.5, 3.5}, {2}));
  EXPECT_EQ(compress(v.narrow(1, 0, 3), v.narrow(1, 0, 3), {}, {}, c).second.size(1), 0);
}

TEST(Compress, ConvTapZeroMeetsTheOldestTokenAndStartsAsMean) {
  const NsaConfig c = tiny(Phi::kConv, RopeMode::kNone);
  const at::Tensor v = doubles({1, 10, 100, 1000}, {1, 4, 1, 1});
  PhiWeights weights;
  weights.conv = doubles({1, 2, 3, 4}, {1, 4});
  expect_near(compress(v, v, weights, weights, c).second.flatten(), doubles({4321}, {1}));
  const PhiWeights fresh = make_phi_weights(c, 1, at::kDouble);
  expect_near(compress(v, v, fresh, fresh, c).second,
              compress(v, v, {}, {}, tiny(Phi::kMean, RopeMode::kNone)).second, 1e-12);
}

TEST(Compress, RopeTouchesKeysOnly) {
  at::manual_seed(4);
  const at::Tensor x = at::randn({1, 9, 2, 2}, at::kDouble);
  const auto plain = compress(x, x, {}, {}, tiny(Phi::kMean, RopeMode::kNone));
  const auto before = compress(x, x, {}, {}, tiny(Phi::kMean, RopeMode::kBeforePool));
  const auto start = compress(x, x, {}, {}, tiny(Phi::kMean, RopeMode::kBlockStart));
  expect_near(before.second, plain.second, 0);
  expect_near(before.first,
              compress(rope(x, at::arange(9)), x, {}, {}, tiny(Phi::kMean, RopeMode::kNone)).first);
  expect_near(start.first, rope(plain.first, at::arange(0, 6, 2)));
  NsaConfig halves = tiny(Phi::kMean, RopeMode::kBlockStart);
  halves.rope_pairs = RopePairs::kHalfSplit;
  const at::Tensor wide = at::randn({1, 9, 2, 4}, at::kDouble);
  expect_near(compress(wide, wide, {}, {}, halves).first,
              rope(compress(wide, wide, {}, {}, tiny(Phi::kMean, RopeMode::kNone)).first,
                   at::arange(0, 6, 2), 1e4, RopePairs::kHalfSplit));
}

TEST(Compress, PackedEqualsSeparateDocuments) {
  at::manual_seed(5);
  const NsaConfig c = tiny(Phi::kMean, RopeMode::kBeforePool);
  const at::Tensor k = at::randn({12, 1, 2}, at::kDouble), v = at::randn({12, 1, 1}, at::kDouble);
  const PackedCompressed packed =
      compress_packed(k, v, ints({0, 0, 3, 12}, {4}), {}, {}, c);  // lengths 0, 3 and 9
  EXPECT_TRUE(at::equal(packed.cu_cmp, ints({0, 0, 0, 3}, {4})));
  expect_near(
      packed.k_cmp,
      compress(k.narrow(0, 3, 9).unsqueeze(0), v.narrow(0, 3, 9).unsqueeze(0), {}, {}, c).first[0],
      0);
}

TEST(Compress, GradientsOfSourcesAndWeights) {
  at::manual_seed(6);
  const auto draw = [](at::IntArrayRef shape) { return at::randn(shape, at::kDouble) * 0.5; };
  const auto run = [](const NsaConfig& c, const at::Tensor& x, const PhiWeights& w) {
    return compress(x, x, w, w, c).first;
  };
  const at::Tensor x = draw({1, 7, 2, 2});
  expect_gradients(
      [&](const auto& in) {
        return std::vector{run(tiny(Phi::kMean, RopeMode::kBlockStart), in[0], {})};
      },
      {x.clone()});
  expect_gradients(
      [&](const auto& in) {
        PhiWeights w;
        w.conv = in[1];
        return std::vector{run(tiny(Phi::kConv, RopeMode::kBeforePool), in[0], w)};
      },
      {x.clone(), draw({2, 4})});
  expect_gradients(
      [&](const auto& in) {
        return std::vector{run(tiny(Phi::kMlp, RopeMode::kBlockStart), in[0],
                               {{}, in[1], in[2], in[3], in[4], in[5]})};
      },
      {x.clone(), draw({4, 2}), draw({2, 8}), draw({2}), draw({2, 2}), draw({2})});
}

TEST(Compress, BadArgumentsAreNamed) {
  const at::Tensor x = at::randn({1, 8, 1, 2});
  EXPECT_THAT(error_of([&] { compress(x, x, {}, {}, tiny(Phi::kConv, RopeMode::kNone)); }),
              HasSubstr("nsa::compress: conv must be a tensor, got an undefined tensor"));
  PhiWeights wrong;
  wrong.conv = at::ones({2, 3});
  EXPECT_THAT(error_of([&] { compress(x, x, wrong, wrong, tiny(Phi::kConv, RopeMode::kNone)); }),
              HasSubstr("nsa::compress: conv must be [D, l] = [2, 4], got shape [2, 3]"));
  EXPECT_THAT(error_of([&] { compress(x, x[0], {}, {}, tiny(Phi::kMean, RopeMode::kNone)); }),
              HasSubstr("nsa::compress: v must be of rank 4"));
}

TEST(Gate, ActivationsAndCombination) {
  const at::Tensor logits = doubles({0, std::log(2.0), std::log(5.0)}, {1, 1, 1, 3});
  expect_near(gate_activate(logits, GateActivation::kSoftmax).flatten(),
              doubles({1 / 8.0, 2 / 8.0, 5 / 8.0}, {3}));
  expect_near(gate_activate(logits, GateActivation::kSigmoid).flatten(),
              doubles({1 / 2.0, 2 / 3.0, 5 / 6.0}, {3}));
  const at::Tensor gates = doubles({1, 10, 100}, {1, 1, 1, 3});  // one KV head, two heads
  const at::Tensor a = doubles({1, 2}, {1, 1, 2, 1});
  expect_near(gate_combine(a, a * 2, a * 3, gates), doubles({321, 642}, {1, 1, 2, 1}));
}

TEST(Gate, MlpTakesTheGroupMeanAndVariesAtInitialisation) {
  at::manual_seed(7);
  const GateWeights w = make_gate_weights(64, at::kDouble);
  EXPECT_EQ(w.w1.sizes(), at::IntArrayRef({32, 64}));
  EXPECT_EQ(make_gate_weights(1).w1.sizes(), at::IntArrayRef({1, 1}));
  EXPECT_NEAR(w.w2.std().item<double>(), 0.024, 0.005);
  EXPECT_EQ(w.b2.abs().sum().item<double>(), 0);
  const at::Tensor q = at::randn({2, 5, 6, 64}, at::kDouble);
  const at::Tensor mean = q.unflatten(2, {2, 3}).mean(3);
  const at::Tensor want = at::linear(at::silu(at::linear(mean, w.w1, w.b1)), w.w2, w.b2);
  expect_near(gate_mlp(q, w, 2), want);
}

TEST(Gate, GradientsAndArguments) {
  at::manual_seed(8);
  const auto draw = [](at::IntArrayRef shape) { return at::randn(shape, at::kDouble); };
  expect_gradients(
      [](const auto& x) {
        const at::Tensor logits = gate_mlp(x[3], {x[4], x[5], x[6], x[7]}, 2);
        const at::Tensor gates = gate_activate(logits, GateActivation::kSoftmax);
        return std::vector{gate_combine(x[0], x[1], x[2], gates)};
      },
      {draw({1, 2, 4, 2}), draw({1, 2, 4, 2}), draw({1, 2, 4, 2}), draw({1, 2, 4, 3}), draw({2, 3}),
       draw({2}), draw({3, 2}), draw({3})});
  const at::Tensor o = at::randn({1, 2, 4, 2});
  EXPECT_THAT(error_of([&] { gate_combine(o, o, o, at::randn({1, 2, 3, 3})); }),
              HasSubstr("nsa::gate_combine: heads of gates must be a divisor of Hq = 4, got 3"));
  EXPECT_THAT(error_of([&] { gate_combine(o, o[0], o, at::randn({1, 2, 4, 3})); }),
              HasSubstr("nsa::gate_combine: o_sel must be of shape "));
  EXPECT_THAT(error_of([&] { gate_activate(o, GateActivation::kNone); }),
              HasSubstr("nsa::gate_activate: last size of logits must be 3, got "));
}

}  // namespace
}  // namespace nsa

// The kernels that move tokens against the plain operators in fp64 on the CPU; part of
// backends_gpu_test. One rounding: half a unit of the last place of the type, and what fp32 sums
// lose before it.
#include "nsa/compress/compress.h"
#include "nsa/core/backends_gpu_testing.h"
#include "nsa/gate/fused_combine.h"
#include "nsa/gate/gate.h"
#include "nsa/model/embedding.h"
#include "nsa/model/swiglu.h"
#include "nsa/rope/rope.h"

namespace nsa {
namespace {

using Tensors = std::vector<at::Tensor>;
using TokenCall = std::function<at::Tensor(const Tensors&)>;

/// Output and gradients of `call` in fp64 on the CPU.
Tensors outcome(const TokenCall& call, const Tensors& inputs, const at::Tensor& d_out,
                at::Device device, bool exact) {
  Tensors leaves;
  for (const at::Tensor& x : inputs) {
    const at::Tensor at_home = exact ? x.to(device, at::kDouble) : x.to(device);
    leaves.push_back(at_home.detach().clone(at::MemoryFormat::Preserve).requires_grad_(true));
  }
  const at::Tensor out = call(leaves);
  out.backward(d_out.to(device, out.scalar_type()));
  Tensors all{out.detach().to(at::kCPU, at::kDouble)};
  for (const at::Tensor& leaf : leaves) all.push_back(leaf.grad().to(at::kCPU, at::kDouble));
  return all;
}

void expect_one_rounding(const TokenCall& call, const Tensors& inputs, const at::Tensor& d_out,
                         at::ScalarType type) {
  const double unit = type == at::kHalf ? 0x1p-11 : 0x1p-8;
  const Tensors have = outcome(call, inputs, d_out, at::kCUDA, false);
  const Tensors again = outcome(call, inputs, d_out, at::kCUDA, false);
  const Tensors want = outcome(call, inputs, d_out, at::kCPU, true);
  for (size_t i = 0; i < have.size(); ++i) {
    const at::Tensor excess = (have[i] - want[i]).abs() - want[i].abs() * unit;
    EXPECT_LE(excess.max().item<double>(), 1e-5) << "tensor " << i;
    EXPECT_TRUE(at::equal(have[i], again[i])) << "not the same bits twice: tensor " << i;
  }
}

class TokensOnCuda : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override { at::manual_seed(31); }
  at::Tensor draw_tokens(at::IntArrayRef sizes) const {
    return at::randn(sizes, at::kDouble).to(GetParam());
  }
};

TEST_P(TokensOnCuda, RopeRotatesLongPositions) {
  for (const int64_t dim : {8, 64, 192}) {
    const at::Tensor x = draw_tokens({2, 37, 3, dim});
    for (const at::Tensor& positions :
         {at::arange(37) * 1777, at::randint(0, 65536, {2, 37}, at::kLong)}) {
      const auto call = [&](const Tensors& in) {
        return rope(in[0], positions.to(in[0].device()), 1e4);
      };
      expect_one_rounding(call, {x}, draw_tokens({2, 37, 3, dim}), GetParam());
    }
  }
  // Not contiguous: every second head.
  const at::Tensor wide = draw_tokens({1, 9, 6, 64});
  const auto strided_call = [](const Tensors& in) {
    return rope(in[0].slice(2, 0, 6, 2), at::arange(9, at::kLong).to(in[0].device()), 1e4);
  };
  expect_one_rounding(strided_call, {wide}, draw_tokens({1, 9, 3, 64}), GetParam());
}

TEST_P(TokensOnCuda, MeanOfOverlappingBlocks) {
  for (const auto& [l, d] : {std::pair{32, 16}, std::pair{4, 4}, std::pair{12, 4}}) {
    for (const int64_t tokens : {32, 33, 100}) {
      NsaConfig config;
      config.block_size = l;
      config.block_stride = d;
      config.rope = RopeMode::kNone;
      const at::Tensor x = draw_tokens({2, tokens, 3, 64});
      EXPECT_STREQ(compress_backend(x.to(at::kCUDA), config), "fused");
      const auto call = [&](const Tensors& in) {
        return compress(in[0], in[0], {}, {}, config).first;
      };
      expect_one_rounding(call, {x}, draw_tokens({2, config.num_compressed(tokens), 3, 64}),
                          GetParam());
    }
  }
}

TEST_P(TokensOnCuda, GatedSumWithOwnAndSharedGates) {
  for (const auto& [heads, gate_heads] : {std::pair{6, 6}, std::pair{6, 2}, std::pair{16, 1}}) {
    for (const int64_t dim : {8, 64, 128, 264}) {
      const Tensors inputs{draw_tokens({2, 21, heads, dim}), draw_tokens({2, 21, heads, dim}),
                           draw_tokens({2, 21, heads, dim}),
                           at::rand({2, 21, gate_heads, 3}, at::kFloat)};
      EXPECT_STREQ(gate_combine_backend(inputs[0].to(at::kCUDA), inputs[3].to(at::kCUDA)), "fused");
      const auto call = [](const Tensors& in) { return gate_combine(in[0], in[1], in[2], in[3]); };
      const at::Tensor d_out = draw_tokens({2, 21, heads, dim});
      const Tensors have = outcome(call, inputs, d_out, at::kCUDA, false);
      const Tensors want = outcome(call, inputs, d_out, at::kCPU, true);
      const double unit = GetParam() == at::kHalf ? 0x1p-11 : 0x1p-8;
      for (size_t i = 0; i < have.size(); ++i) {
        // The gradient of a gate is an fp32 sum over heads and columns.
        const double slack = i == 4 ? 1e-3 : 1e-5;
        const at::Tensor excess = (have[i] - want[i]).abs() - want[i].abs() * (i == 4 ? 0 : unit);
        EXPECT_LE(excess.max().item<double>(), slack) << "tensor " << i;
      }
    }
  }
}

// A call has the same bits with and without gradients.
TEST_P(TokensOnCuda, ActivationWithinTheSumHasTheBitsOfTheOperators) {
  for (const auto activation :
       {GateActivation::kSigmoid, GateActivation::kSoftmax, GateActivation::kNone}) {
    for (const at::ScalarType type : {at::kFloat, GetParam()}) {
      std::array<at::Tensor, 3> branch;
      for (at::Tensor& o : branch) o = draw_tokens({2, 999, 6, 64}).to(at::kCUDA);
      const at::Tensor logits =
          (at::randn({2, 999, 2, 3}, at::TensorOptions(at::kCUDA)) * 3).to(type);
      const GatedOutput have = gated_sum_by_kernel({branch, logits, activation});
      const at::Tensor gates = gate_activate(logits, activation);
      EXPECT_TRUE(at::equal(have.gates, gates)) << to_string(activation);
      EXPECT_TRUE(at::equal(have.o, gate_combine(branch[0], branch[1], branch[2], gates)))
          << to_string(activation);
    }
  }
}

TEST_P(TokensOnCuda, GatedProductOfTheMlp) {
  for (const int64_t hidden : {8, 72, 1920}) {
    const at::Tensor x = draw_tokens({2, 13, 2 * hidden}) * 4;
    const auto call = [](const Tensors& in) { return silu_product(in[0]); };
    expect_one_rounding(call, {x}, draw_tokens({2, 13, hidden}), GetParam());
  }
  const at::Tensor far = at::tensor({-6e4, 6e4, -90.0, 90.0, 0.0, -0.0, 1.0, -1.0}, at::kDouble);
  const auto call = [](const Tensors& in) { return silu_product(in[0]); };
  expect_one_rounding(call, {at::cat({far, far.flip(0)}).to(GetParam())},
                      at::ones({8}, at::kDouble).to(GetParam()), GetParam());
}

// Few tokens make most of a text: their sums are long, and their order must not be chance.
TEST_P(TokensOnCuda, GradientsOfEmbeddedTokensRepeatTheirBits) {
  for (const int64_t vocab : {256, 20000}) {  // as one product, and sorted
    const at::Tensor tokens = (at::rand({4, 2048}).pow(8) * vocab).to(at::kLong);
    const at::Tensor d_out = draw_tokens({4, 2048, 96});
    const auto gradient = [&](at::Device device, at::ScalarType type, at::ScalarType computed) {
      const at::Tensor weight =
          at::ones({vocab, 96}, at::TensorOptions(device).dtype(type)).requires_grad_(true);
      embed_tokens(weight, tokens.to(device), computed).backward(d_out.to(device, computed));
      return weight.grad().cpu();
    };
    const at::Tensor have = gradient(at::kCUDA, at::kFloat, GetParam());
    for (int time = 0; time < 5; ++time)
      ASSERT_TRUE(at::equal(have, gradient(at::kCUDA, at::kFloat, GetParam()))) << vocab;
    const at::Tensor want = gradient(at::kCPU, at::kDouble, at::kDouble);
    EXPECT_LE((have - want).abs().max().item<double>(), 1e-5 * want.abs().max().item<double>());
  }
}

INSTANTIATE_TEST_SUITE_P(Types, TokensOnCuda, ::testing::Values(at::kBFloat16, at::kHalf),
                         [](const auto& one) {
                           return std::string(one.param == at::kHalf ? "fp16" : "bf16");
                         });

}  // namespace
}  // namespace nsa

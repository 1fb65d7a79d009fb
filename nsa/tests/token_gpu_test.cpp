// The kernels that move tokens against the plain operators in fp64 on the CPU; part of
// backends_gpu_test. One rounding: half a unit of the last place of the type, and what fp32 sums
// lose before it.
#include "nsa/model/blocks/embedding.h"
#include "nsa/model/blocks/normed_linear.h"
#include "nsa/model/blocks/residual_norm.h"
#include "nsa/model/blocks/swiglu.h"
#include "nsa/ops/compress/compress.h"
#include "nsa/ops/gate/fused_combine.h"
#include "nsa/ops/gate/fused_mlp.h"
#include "nsa/ops/gate/gate.h"
#include "nsa/ops/linear/gradient_places.h"
#include "nsa/ops/linear/rounded_linear.h"
#include "nsa/ops/rope/rope.h"
#include "nsa/tests/backends_gpu_testing.h"

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

TEST_P(TokensOnCuda, TheProductOfTheMlpIsComputedAgain) {
  const at::Tensor x = draw_tokens({2, 150, 64}), up = draw_tokens({2 * 72, 64}).to(at::kFloat),
                   down = draw_tokens({48, 72}).to(at::kFloat);
  const auto call = [](const Tensors& in) {
    const at::Tensor y = swiglu(rounded_linear(in[0], {in[1]}), in[2]);
    if (y.is_cuda()) {
      EXPECT_THAT(y.grad_fn()->name(), ::testing::HasSubstr("FusedDown"));
    }
    return y;
  };
  const at::Tensor d_out = draw_tokens({2, 150, 48});
  const Tensors have = outcome(call, {x, up, down}, d_out, at::kCUDA, false);
  const Tensors want = outcome(call, {x, up, down}, d_out, at::kCPU, true);
  const double unit = GetParam() == at::kHalf ? 0x1p-11 : 0x1p-8;
  for (size_t i = 0; i < have.size(); ++i)
    EXPECT_LE(distance(have[i], want[i]), 2 * unit) << "tensor " << i;
}

// The sum goes on as the residual stream, so a gradient comes through it, too.
TEST_P(TokensOnCuda, ResidualAndItsNorm) {
  for (const int64_t dim : {8, 64, 264, 520, 768, 1024, 1032, 2560, 8192}) {
    for (const int64_t rows : {1, 37, dim > 1024 ? 700 : 5000}) {
      const at::Tensor x = draw_tokens({rows, dim}), added = draw_tokens({rows, dim}) * 2;
      const at::Tensor weight = at::randn({dim}, at::kFloat);
      const auto call = [&](const Tensors& in) {
        const NormedResidual both = residual_norm({in[0], in[1]}, in[2], 1e-6);
        if (in[0].is_cuda()) {
          EXPECT_THAT(both.normed.grad_fn()->name(), ::testing::HasSubstr("FusedResidualNorm"));
        }
        return at::stack({both.normed, both.sum});
      };
      // What is rounded before it is used again: the sum, the weight.
      const at::Tensor sum = (x + added).to(GetParam());
      const Tensors rounded{x, sum.to(at::kDouble) - x.to(at::kDouble), weight.to(GetParam())};
      const at::Tensor d_out = at::stack({draw_tokens({rows, dim}), draw_tokens({rows, dim})});
      const Tensors have = outcome(call, {x, added, weight}, d_out, at::kCUDA, false);
      const Tensors again = outcome(call, {x, added, weight}, d_out, at::kCUDA, false);
      const Tensors want = outcome(call, rounded, d_out, at::kCPU, true);
      const double unit = GetParam() == at::kHalf ? 0x1p-11 : 0x1p-8;
      for (size_t i = 0; i < have.size(); ++i) {
        const bool of_weight = i == 3;  // an fp32 sum over the rows
        const double slack = of_weight ? 1e-5 * std::sqrt(static_cast<double>(rows)) : 3e-5;
        const at::Tensor excess =
            (have[i] - want[i]).abs() - want[i].abs() * (of_weight ? 0x1p-20 : unit);
        EXPECT_LE(excess.max().item<double>(), slack) << "tensor " << i << " dim " << dim;
        EXPECT_TRUE(at::equal(have[i], again[i])) << "not the same bits twice: tensor " << i;
      }
    }
  }
}

// Sum, product and gradients, at once or one behind the other.
Tensors normed_product(const Tensors& inputs, const at::Tensor& d_sum, const at::Tensor& d_y,
                       bool at_once) {
  Tensors leaves;
  for (const at::Tensor& x : inputs)
    leaves.push_back(x.defined() ? x.to(at::kCUDA).detach().clone().requires_grad_(true) : x);
  const Residual in{leaves[0], leaves[1]};
  const Tensors weights{leaves[3], leaves[4]};
  at::Tensor sum, y;
  if (at_once) {
    const NormedLinear both = normed_linear(in, leaves[2], 1e-6, weights, "test.product");
    sum = both.sum, y = both.y;
    EXPECT_THAT(y.grad_fn()->name(), ::testing::HasSubstr("FusedNormedLinear"));
  } else {
    const NormedResidual normed = residual_norm(in, leaves[2], 1e-6);
    sum = normed.sum, y = rounded_linear(normed.normed, weights);
  }
  at::Tensor loss = (y.to(at::kFloat) * d_y.to(at::kCUDA)).sum();
  if (d_sum.defined()) loss = loss + (sum.to(at::kFloat) * d_sum.to(at::kCUDA)).sum();
  loss.backward();
  Tensors all{sum.detach(), y.detach()};
  for (const at::Tensor& leaf : leaves)
    if (leaf.defined()) all.push_back(leaf.grad());
  return all;
}

// The norm for the gradients of the weights behind it comes from the pass over its gradient.
TEST_P(TokensOnCuda, NormedLinearHasTheBitsOfNormAndProduct) {
  for (const int64_t dim : {64, 264, 768, 1024, 2048, 2560}) {
    for (const bool goes_on : {false, true}) {
      const at::Tensor x = draw_tokens({2, 701, dim}), none;
      const at::Tensor added = goes_on ? draw_tokens({2, 701, dim}) * 2 : none;
      const Tensors inputs{x, added, at::randn({dim}, at::kFloat), at::randn({48, dim}, at::kFloat),
                           at::randn({16, dim}, at::kFloat)};
      const at::Tensor d_sum = goes_on ? draw_tokens({2, 701, dim}) : none,
                       d_y = draw_tokens({2, 701, 64});
      const Tensors have = normed_product(inputs, d_sum, d_y, true);
      const Tensors want = normed_product(inputs, d_sum, d_y, false);
      for (size_t i = 0; i < have.size(); ++i)
        EXPECT_TRUE(at::equal(have[i], want[i])) << "tensor " << i << " dim " << dim;
    }
  }
}

TEST_P(TokensOnCuda, GateMlpAddsToTheGradientOfQueries) {
  for (const auto& [heads, kv, dim] :
       {std::tuple{6, 2, 64}, std::tuple{1, 1, 8}, std::tuple{12, 4, 72}, std::tuple{16, 1, 128},
        std::tuple{6, 2, 192}}) {
    for (const int64_t tokens : {1, 33, 20000}) {
      SCOPED_TRACE(std::to_string(dim) + " " + std::to_string(tokens));
      // Tokens further apart than their heads are wide.
      const at::Tensor wide = draw_tokens({tokens, heads + 1, dim}).to(at::kCUDA);
      const at::Tensor q = wide.narrow(1, 0, heads);
      const GateWeights weights = make_gate_weights(dim, at::TensorOptions(at::kCUDA));
      ASSERT_TRUE(gates_by_kernel(q, weights));
      const at::Tensor d_logits = at::randn({tokens, kv, 3}, q.options().dtype(at::kFloat));
      const at::Tensor before = draw_tokens({tokens, heads, dim}).to(at::kCUDA);
      const at::Tensor d_q = before.clone(), d_q_again = before.clone();
      const at::Tensor logits = gate_mlp_by_kernel(q, weights, kv);
      const GateWeights d = gate_mlp_backward_by_kernel(q, weights, d_logits, d_q);
      const GateWeights again = gate_mlp_backward_by_kernel(q, weights, d_logits, d_q_again);
      const auto exact = [](const at::Tensor& x) {
        return x.to(at::kCPU, at::kDouble).detach().requires_grad_(true);
      };
      const GateWeights w{exact(weights.w1), exact(weights.b1), exact(weights.w2),
                          exact(weights.b2)};
      const at::Tensor q_leaf = exact(q.contiguous());
      const at::Tensor want = gate_mlp(q_leaf, w, kv);
      want.backward(d_logits.to(at::kCPU, at::kDouble));
      const auto home = [](const at::Tensor& x) { return x.to(at::kCPU, at::kDouble); };
      EXPECT_LE((home(logits) - want).abs().max().item<double>(), 1e-5);
      const at::Tensor d_q_want = home(before) + q_leaf.grad();
      const double unit = GetParam() == at::kHalf ? 0x1p-11 : 0x1p-8;
      const at::Tensor excess = (home(d_q) - d_q_want).abs() - d_q_want.abs() * unit;
      EXPECT_LE(excess.max().item<double>(), 1e-5);
      EXPECT_FALSE(at::equal(d_q, before));
      EXPECT_TRUE(at::equal(d_q, d_q_again)) << "not the same bits twice";
      const std::tuple<const at::Tensor*, const at::Tensor*, const at::Tensor*> sums[] = {
          {&d.w1, &again.w1, &w.w1},
          {&d.b1, &again.b1, &w.b1},
          {&d.w2, &again.w2, &w.w2},
          {&d.b2, &again.b2, &w.b2}};
      for (const auto& [have, twice, leaf] : sums) {
        EXPECT_LE(distance(home(*have), leaf->grad()), 1e-5);
        EXPECT_TRUE(at::equal(*have, *twice)) << "not the same bits twice";
      }
    }
  }
}

TEST_P(TokensOnCuda, LinearKeepsTheGradientOfWeightsWide) {
  const Tensors weights{at::randn({24, 64}, at::kFloat), at::randn({8, 64}, at::kFloat)};
  const at::Tensor x = draw_tokens({2, 700, 64}), d_out = draw_tokens({2, 700, 32});
  const auto call = [](const Tensors& in) { return rounded_linear(in[0], {in[1], in[2]}); };
  const Tensors have = outcome(call, {x, weights[0], weights[1]}, d_out, at::kCUDA, false);
  const Tensors want = outcome(call, {x, weights[0].to(GetParam()), weights[1].to(GetParam())},
                               d_out, at::kCPU, true);
  const double unit = GetParam() == at::kHalf ? 0x1p-11 : 0x1p-8;
  for (size_t i = 0; i < have.size(); ++i)
    EXPECT_LE(distance(have[i], want[i]), i < 2 ? unit : 1e-5) << "tensor " << i;
}

// In memory of their own or in places, behind one another or apart: the same bits.
TEST_P(TokensOnCuda, GradientsOfWeightsAreMadeInTheirPlaces) {
  const at::TensorOptions options(at::kCUDA);
  const Tensors weights{at::randn({24, 64}, options), at::randn({8, 64}, options)};
  const at::Tensor x = draw_tokens({2, 701, 64}).to(at::kCUDA), norm = at::randn({64}, options);
  const at::Tensor d_y = draw_tokens({2, 701, 32}).to(at::kCUDA);
  const at::Tensor bucket = at::zeros({4096}, options);
  for (const bool normed : {false, true}) {
    Tensors plain;
    for (const int64_t second : {-1, 24 * 64, 2048}) {
      Tensors leaves;
      for (const at::Tensor& weight : weights) leaves.push_back(weight.clone().requires_grad_());
      const auto places = c10::make_intrusive<GradientPlaces>();
      if (second >= 0) {
        places->want(leaves[0], bucket.narrow(0, 0, 24 * 64).view({24, 64}));
        places->want(leaves[1], bucket.narrow(0, second, 8 * 64).view({8, 64}));
      }
      const GradientPlaces::Scope scope(places);
      const at::Tensor y = normed ? normed_linear({x, {}}, norm, 1e-6, leaves, "test.product").y
                                  : rounded_linear(x, leaves);
      y.backward(d_y);
      if (second < 0) plain = {leaves[0].grad(), leaves[1].grad()};
      for (size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(leaves[i].grad().is_alias_of(bucket), second >= 0);
        EXPECT_TRUE(at::equal(leaves[i].grad(), plain[i])) << "weight " << i << " at " << second;
      }
    }
  }
}

TEST_P(TokensOnCuda, RoundedWeightsAreFoundWhileTheyLive) {
  const at::TensorOptions options(at::kCUDA);
  const Tensors weights{at::randn({24, 64}, options), at::randn({7}, options),
                        at::randn({8, 64}, options), at::randn({5, 3}, options),
                        at::randn({16, 5}, options)};
  const at::Tensor x = draw_tokens({9, 64}).to(at::kCUDA);
  const at::Tensor plain = rounded_linear(x, {weights[0], weights[2]});
  {
    const RoundedWeights rounded(weights, GetParam());
    const auto expect_rows = [&](const Tensors& of) {
      const at::Tensor rows = rounded.rows(of, GetParam());
      ASSERT_TRUE(rows.defined());
      EXPECT_TRUE(at::equal(rows, at::cat(of).to(GetParam())));
    };
    expect_rows({weights[0]});
    expect_rows({weights[0], weights[2]});
    expect_rows({weights[3]});
    EXPECT_FALSE(rounded.rows({weights[2], weights[0]}, GetParam()).defined()) << "another order";
    EXPECT_FALSE(rounded.rows({weights[4]}, GetParam()).defined()) << "not aligned";
    EXPECT_FALSE(rounded.rows({weights[0]}, at::kFloat).defined());
    EXPECT_TRUE(at::equal(rounded_linear(x, {weights[0], weights[2]}), plain));
  }
  const at::Tensor before = rounded_linear(x, {weights[0]});
  weights[0].neg_();
  EXPECT_TRUE(at::equal(rounded_linear(x, {weights[0]}), -before));
}

TEST_P(TokensOnCuda, EmbeddingHasTheGradientOfEveryPlace) {
  const at::Tensor weight = at::randn({256, 64}, at::kFloat);
  const at::Tensor tokens = at::randint(0, 200, {3, 1500}, at::kLong);
  const auto call = [&](const Tensors& in) {
    return embed_tokens(in[0], tokens.to(in[0].device()),
                        in[0].is_cuda() ? GetParam() : at::kDouble);
  };
  const at::Tensor d_out = draw_tokens({3, 1500, 64});
  const Tensors have = outcome(call, {weight}, d_out, at::kCUDA, false);
  const Tensors again = outcome(call, {weight}, d_out, at::kCUDA, false);
  const Tensors want = outcome(call, {weight}, d_out, at::kCPU, true);
  EXPECT_LE(distance(have[0], want[0]), GetParam() == at::kHalf ? 0x1p-11 : 0x1p-8);
  EXPECT_LE(distance(have[1], want[1]), 1e-6);
  EXPECT_TRUE(at::equal(have[1], again[1])) << "not the same bits twice";
}

INSTANTIATE_TEST_SUITE_P(Types, TokensOnCuda, ::testing::Values(at::kBFloat16, at::kHalf),
                         [](const auto& one) {
                           return std::string(one.param == at::kHalf ? "fp16" : "bf16");
                         });

}  // namespace
}  // namespace nsa

// The gated sum of the branches in the emulator, forward and backward, against Eq. 5 of the paper
// and its derivatives, and the row statistics against what the branches' backward passes want.
#include "nsa/kernels/tokens/combine.cu"

#include "nsa/kernels/tests/tokens/combine_problem.h"

namespace nsa::kernels::emulator {
namespace {

constexpr Activation kActivations[] = {Activation::kNone, Activation::kSigmoid,
                                       Activation::kSoftmax};

void expect_right(const CombineProblem& x) {
  const Forward f = in_every_order([&] { return forward(x); });
  expect_numbers(f.out, x.wanted_rows(true, 0), x.c.half, "out");
  expect_floats(f.gates, x.all_triples([&](int i) { return x.gates_of(i); }), "gates");
  EXPECT_TRUE(forward(x, false).out == f.out);
  const Backward b = in_every_order([&] { return backward(x); });
  for (int i = 0; i < 3; ++i)
    expect_numbers(b.branches[i], x.wanted_rows(false, i), x.c.half, "d_branch");
  b.expect_logits(x);
}

TEST(CombineEmulated, SumsAndGradientsOfAllActivations) {
  for (const Activation activation : kActivations)
    for (const bool half : {false, true})
      for (const bool shared : {false, true})
        expect_right(CombineProblem({2, 5, 2, 3, 64, activation, half, shared, half == shared}));
}

TEST(CombineEmulated, AllGroupsAndWidths) {
  for (const int group : {1, 4, 6, 16})
    for (const int dim : {8, 24, 128, 192, 264}) {
      expect_right(CombineProblem({1, 3, 1, group, dim, Activation::kSoftmax, false, true}));
      expect_right(CombineProblem({1, 1, 1, group, dim, Activation::kSigmoid, true, false}));
    }
}

/// Of a gate that is 0, or next to it, the logarithm is far from that of every probability.
void expect_shifted(float have, float lse, const Near& gate) {
  constexpr double kLog2OfE = 1.44269504088896340736;
  if (gate.value < 0x1p-120) {
    EXPECT_TRUE(std::isfinite(have) && have >= lse * kLog2OfE + 119) << gate.value;
    return;
  }
  const double log_gate = std::log2(gate.value), want = lse * kLog2OfE - log_gate;
  const double error =
      4 * Near::kUnit * (std::fabs(lse * kLog2OfE) + std::fabs(log_gate) + std::fabs(want)) +
      gate.error / gate.value * kLog2OfE;
  EXPECT_LE(std::fabs(have - want), error) << want;
}

void expect_row(const CombineProblem& x, const Statistics& have, int row, int i) {
  const GatedRows& of = Statistics::kOf[i];
  const int at = place_of(x.c, row, of.by_kv_head) * of.stride;
  bool finite = true;  // d_out
  for (int column = 0; column < x.c.dim; ++column)
    finite = finite && std::isfinite(x.d_out.at(0, row, 0, column));
  const float lse = x.lse[i][row], shifted = have.shifted[i][at];
  const Near gate = x.gates_of(row / x.c.heads_per_gate())[i];
  Near delta = x.delta_of(row, i);
  if (of.marks_bad_rows && (!finite || !std::isfinite(lse))) {
    EXPECT_TRUE(std::isnan(shifted)) << row;
  } else if (lse == -INFINITY) {
    EXPECT_EQ(shifted, INFINITY) << row;
    delta = Near(0);
  } else if (std::isnan(gate.value) || std::isnan(lse)) {
    EXPECT_TRUE(std::isnan(shifted)) << row;
  } else {
    expect_shifted(shifted, lse, gate);
  }
  EXPECT_TRUE(is_near(have.delta[i][at], delta, 0))
      << have.delta[i][at] << ", not " << delta.value << " +- " << delta.error;
  for (int gap = 1; gap < of.stride; ++gap)
    EXPECT_TRUE(have.shifted[i][at + gap] == -7.f && have.delta[i][at + gap] == -7.f);
}

void expect_statistics(const CombineProblem& x) {
  const Statistics have = in_every_order([&] { return Statistics(x); });
  have.expect_logits(x);
  EXPECT_EQ(have.flags, std::vector<int>({0, 0, 0}));
  for (int row = 0; row < x.c.rows(); ++row)
    for (int i = 0; i < 3; ++i) expect_row(x, have, row, i);
}

TEST(CombineStatisticsEmulated, LogarithmsLessTheGatesAndSums) {
  for (const Activation activation : {Activation::kSigmoid, Activation::kSoftmax})
    for (const bool half : {false, true})
      for (const bool shared : {false, true})
        expect_statistics(
            CombineProblem({2, 5, 2, 3, 64, activation, half, shared, half != shared}));
}

TEST(CombineStatisticsEmulated, AllGroupsAndWidths) {
  for (const int group : {1, 4, 6, 16})
    for (const int dim : {8, 24, 128, 264})
      for (const bool shared : {false, true})
        expect_statistics(
            CombineProblem({1, 3, 2, group, dim, Activation::kSoftmax, false, shared}));
}

TEST(CombineStatisticsEmulated, RowsWithoutKeysAndNonFiniteValues) {
  for (const bool shared : {false, true}) {
    CombineProblem x({2, 7, 2, 4, 64, Activation::kSigmoid, false, shared});
    for (auto& lse : x.lse) lse[9] = lse[40] = -INFINITY, lse[50] = NAN;
    x.d_out.set(0, 12, 0, 33, NAN);
    x.d_out.set(0, 71, 0, 0, INFINITY);
    x.branch[0].set(0, 20, 0, 7, NAN);
    x.branch[2].set(0, 21, 0, 7, -INFINITY);
    expect_statistics(x);
  }
}

TEST(CombineStatisticsEmulated, GatesNextToZeroAndOne) {
  for (const Activation activation : {Activation::kSigmoid, Activation::kSoftmax}) {
    CombineProblem x({1, 8, 1, 2, 32, activation});
    const float logits[] = {-200, 200, 0, -95, 30, 90, -1e30f, 0, 1e30f};
    for (int i = 0; i < 9; ++i) x.set_logit(i, logits[i]);
    expect_statistics(x);
    expect_right(x);
  }
}

TEST(CombineStatisticsEmulated, FlagsMayBeNull) {
  const CombineProblem x({1, 3, 1, 2, 16});
  EXPECT_EQ(Statistics(x, false).flags, std::vector<int>({1, 2, 3}));
}

TEST(CombineEmulated, ANaNLogitReachesAllGatesOfASoftmax) {
  for (const Activation activation : kActivations)
    for (const bool shared : {false, true})
      for (int i = 0; i < 3; ++i) {
        CombineProblem x({1, 3, 2, 2, 16, activation, false, shared});
        x.set_logit(3 + i, NAN);
        expect_right(x);
      }
}

TEST(CombineEmulated, NonFiniteValuesStayInTheirRow) {
  for (const float bad : {float(NAN), float(INFINITY)}) {
    CombineProblem x({1, 5, 2, 2, 32, Activation::kSigmoid, true, true});
    x.branch[1].set(0, 6, 0, 9, bad);
    x.d_out.set(0, 13, 0, 2, bad);
    expect_right(x);
  }
}

TEST(CombineEmulated, NoRowsAndSizesWithoutKernel) {
  EXPECT_TRUE(forward(CombineProblem({2, 0, 2, 2, 16})).out.empty());
  backward(CombineProblem({0, 3, 2, 2, 16}));
  const CombineProblem x({1, 3, 2, 2, 16});
  const auto refused = [&](auto change) {
    Combine p = x.launched();
    change(p);
    return combine_forward(p, nullptr) == cudaErrorInvalidValue &&
           combine_backward(p, nullptr) == cudaErrorInvalidValue;
  };
  EXPECT_TRUE(refused([](Combine& p) { p.head_dim = 12; }));
  EXPECT_TRUE(refused([](Combine& p) { p.heads_per_gate = 0; }));
  EXPECT_TRUE(refused([](Combine& p) { p.heads_per_gate = 5; }));
  EXPECT_TRUE(refused([](Combine& p) { p.rows = kMostCombined + 2; }));
  Combine p = x.launched();
  p.activation = Activation::kNone;
  EXPECT_EQ(combine_backward(p, nullptr), cudaErrorInvalidValue) << "statistics of given gates";
  p.keeps_two = true;
  EXPECT_EQ(combine_forward(p, nullptr), cudaErrorInvalidValue) << "gates that may be negative";
}

}  // namespace
}  // namespace nsa::kernels::emulator

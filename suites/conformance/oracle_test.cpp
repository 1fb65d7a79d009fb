// The oracle itself: against hand-computed values, against its own sequential mode, and against the
// dense formulation.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "nsa/reference/passes/backward.h"
#include "nsa/reference/passes/forward.h"
#include "nsa/reference/passes/sequential.h"
#include "nsa/reference/stages/scores.h"
#include "suites/conformance/case_inputs.h"
#include "suites/conformance/convert.h"
#include "suites/conformance/settings.h"

namespace suites {
namespace {

using at::Tensor;

constexpr int64_t kSampled = kCornerCases + 28;
/// |d_o| |v| |k| / sqrt(dk) of normal data is larger: what a gradient that cancels is small
/// against.
constexpr double kTerms = 4;

TEST(OracleSelf, OneTokenReturnsItsGatedValue) {
  // S = 1: no compressed block; selection and window attend the token itself, so o = (g_sel +
  // g_win) * v.
  CaseConfig config;
  config.tokens = 1;
  config.gate = GateKind::kNone;
  DenseInputs in = make_inputs(config, DataKind::kNormal, 1, at::kDouble, at::kCPU);
  in.gate =
      at::tensor({5.0, 0.5, 0.25}).to(at::kDouble).expand({1, 1, config.num_heads, 3}).contiguous();
  const auto out = nsa::reference::forward(to_reference(config), to_reference(in));
  const Tensor v = (in.v_sel * 0.5 + in.v_win * 0.25).repeat_interleave(config.group_size(), 2);
  EXPECT_TRUE(at::equal(from_reference(out.o), v));
  EXPECT_TRUE(from_reference(out.lse_cmp).isneginf().all().item<bool>());
}

TEST(OracleSelf, Equation9WeightsOfThePaper) {
  // l = 32, d = 16, l' = 64: block j gathers 1, 2, 2, 2, 1 of compressed blocks 4j-1 .. 4j+3.
  const nsa::reference::Config config;
  const double expected[] = {0, 1, 2, 2, 2, 1, 0};
  for (int64_t i = 6; i <= 12; ++i)
    EXPECT_EQ(nsa::reference::overlap_weight(config, i, 2), expected[i - 6]) << i;
  EXPECT_EQ(nsa::reference::overlap_weight(config, 0, 0), 2);
}

class OracleFormulations : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    one_ = case_of({GetParam(), at::kDouble});
    one_.device = at::kCPU;
    in_ = make_inputs(one_.config, DataKind::kNormal, one_.seed, at::kDouble, at::kCPU);
  }
  void expect_agrees(const char* what, const Tensor& dense, const Tensor& oracle, const char* rule,
                     double terms = 0) const {
    CompareContext context;
    context.terms = terms;
    const CompareReport report =
        compare(dense.detach(), oracle, tolerance("formulations", rule, at::kDouble), context);
    EXPECT_TRUE(report.ok) << what << " " << report.text << "\n  configuration "
                           << to_string(one_.config) << ", seed " << one_.seed;
  }
  OperatorCase one_;
  DenseInputs in_;
};

TEST_P(OracleFormulations, ForwardAgrees) {
  const auto oracle = nsa::reference::forward(to_reference(one_.config), to_reference(in_));
  const DenseOutputs dense = dense_nsa(one_.config, in_);
  EXPECT_TRUE(at::equal(dense.block_idx, from_reference(oracle.block_idx)))
      << to_string(one_.config);
  expect_agrees("q_rot", dense.q_rot, from_reference(oracle.q_rot), "forward");
  expect_agrees("k_cmp", dense.k_cmp, from_reference(oracle.k_cmp), "forward");
  expect_agrees("v_cmp", dense.v_cmp, from_reference(oracle.v_cmp), "forward");
  expect_agrees("p_cmp", dense.cmp.p, from_reference(oracle.p_cmp), "forward");
  expect_agrees("scores", dense.scores, from_reference(oracle.scores), "forward");
  expect_agrees("o_cmp", dense.cmp.o, from_reference(oracle.o_cmp), "forward");
  expect_agrees("o_sel", dense.sel.o, from_reference(oracle.o_sel), "forward");
  expect_agrees("o_win", dense.win.o, from_reference(oracle.o_win), "forward");
  expect_agrees("o", dense.o, from_reference(oracle.o), "forward");
  expect_agrees("lse_cmp", dense.cmp.lse, from_reference(oracle.lse_cmp), "lse");
  expect_agrees("lse_sel", dense.sel.lse, from_reference(oracle.lse_sel), "lse");
  expect_agrees("lse_win", dense.win.lse, from_reference(oracle.lse_win), "lse");
}

TEST_P(OracleFormulations, BackwardAgrees) {
  DenseInputs leaves = as_leaves(in_);
  const Tensor o = dense_nsa(one_.config, leaves).o;
  at::Generator g = make_generator(one_.seed + 1);
  const Tensor d_o = make_data(o.sizes(), DataKind::kNormal, g, at::kDouble);
  std::vector<Tensor> all;
  const auto named = named_inputs(leaves);
  for (const auto& [name, tensor] : named) all.push_back(*tensor);
  const auto dense = torch::autograd::grad({o}, all, {d_o}, std::nullopt, false, true);
  const std::vector<Tensor> oracle = in_named_order(
      nsa::reference::backward(to_reference(one_.config), to_reference(in_), to_reference(d_o)));
  ASSERT_EQ(oracle.size(), dense.size());
  for (size_t i = 0; i < dense.size(); ++i) {
    const auto& [name, leaf] = named[i];
    expect_agrees(name.c_str(), dense[i].defined() ? dense[i] : at::zeros_like(*leaf).detach(),
                  oracle[i], "gradient", kTerms);
  }
}

TEST_P(OracleFormulations, SequentialIsBitEqualToBatched) {
  const auto batched = nsa::reference::forward(to_reference(one_.config), to_reference(in_));
  const auto sequential = nsa::reference::sequential(to_reference(one_.config), to_reference(in_));
  EXPECT_TRUE(sequential.o == batched.o);
  EXPECT_TRUE(sequential.block_idx == batched.block_idx);
}

INSTANTIATE_TEST_SUITE_P(OracleSample, OracleFormulations, testing::Range<int64_t>(0, kSampled),
                         [](const auto& one) { return "c" + std::to_string(one.param); });

}  // namespace
}  // namespace suites

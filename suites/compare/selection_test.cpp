#include "suites/compare/selection.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "suites/compare/generators.h"

namespace suites {
namespace {

using at::Tensor;

// Blocks of 4 tokens; the row at t = 23 has c = 5: block 0 forced (initial), 4 and 5 forced
// (local), 1, 2, 3 free; n = 4 leaves one free place.
constexpr SelectionShape kShape{.group_size = 1,
                                .block_size = 4,
                                .block_stride = 2,
                                .sel_block_size = 4,
                                .num_selected = 4,
                                .num_initial = 1,
                                .num_local = 2};

/// A selection of 24 equal rows up to t = 23 in which only the last row is interesting.
SelectionReport judge(std::vector<int32_t> last_row, std::vector<double> scores, double bound,
                      bool exact = false) {
  Tensor ids = at::full({1, 24, 1, 4}, -1, at::kInt);
  for (int t = 0; t < 24; ++t) {
    const int c = t / 4, count = std::min(4, c + 1);
    // Forced blocks and, where a place is left, block 1.
    const std::vector<int32_t> legal =
        c <= 3 ? std::vector<int32_t>{0, 1, 2, 3} : std::vector<int32_t>{0, 1, c - 1, c};
    for (int i = 0; i < count; ++i) ids[0][t][0][i] = legal[i];
  }
  Tensor s = at::zeros({1, 24, 1, 6}, at::kDouble);
  s.select(-1, 1).fill_(1);
  s[0][23][0] = at::tensor(scores, at::kDouble);
  ids[0][23][0] = at::tensor(last_row, at::kInt);
  return accept_selection(ids, s, at::full({1, 24, 1}, bound, at::kDouble), kShape, exact);
}

TEST(AcceptSelection, BestFreeBlockIsAccepted) {
  const SelectionReport report = judge({0, 2, 4, 5}, {9, 1, 3, 2, 9, 9}, 0);
  EXPECT_TRUE(report.ok) << report.text;
  EXPECT_EQ(report.rows, 24);
}

TEST(AcceptSelection, WorseBlockIsRejectedByName) {
  const SelectionReport report = judge({0, 3, 4, 5}, {9, 1, 3, 2, 9, 9}, 0.5);
  EXPECT_FALSE(report.ok);
  EXPECT_THAT(
      report.text,
      testing::HasSubstr("b=0 t=23 kv_head=0: block 2 (score 3) rejected for block 3 (score 2)"));
}

TEST(AcceptSelection, DifferenceInsideTheTieBoundIsAccepted) {
  const SelectionReport report = judge({0, 3, 4, 5}, {9, 1, 3, 2.75, 9, 9}, 0.5);
  EXPECT_TRUE(report.ok) << report.text;
  EXPECT_EQ(report.differing_rows, 1);
}

TEST(AcceptSelection, TiesGoToTheLowerIndexWhenTheOrderBinds) {
  EXPECT_TRUE(judge({0, 2, 4, 5}, {0, 1, 3, 3, 0, 0}, 0, true).ok);
  EXPECT_FALSE(judge({0, 3, 4, 5}, {0, 1, 3, 3, 0, 0}, 0, true).ok);
  EXPECT_TRUE(judge({0, 3, 4, 5}, {0, 1, 3, 3, 0, 0}, 0, false).ok);
}

TEST(AcceptSelection, NanScoreRanksBelowEveryNumber) {
  EXPECT_FALSE(judge({0, 2, 4, 5}, {0, -5, NAN, -7, 0, 0}, 0).ok);
  EXPECT_TRUE(judge({0, 1, 4, 5}, {0, -5, NAN, -7, 0, 0}, 0).ok);
}

TEST(AcceptSelection, StructureIsChecked) {
  const std::vector<double> s = {9, 1, 3, 2, 9, 9};
  EXPECT_THAT(judge({1, 2, 4, 5}, s, 1e9).text, testing::HasSubstr("forced block 0 missing"));
  EXPECT_THAT(judge({0, 2, 3, 5}, s, 1e9).text, testing::HasSubstr("forced block 4 missing"));
  EXPECT_THAT(judge({0, 4, 2, 5}, s, 1e9).text, testing::HasSubstr("not ascending"));
  EXPECT_THAT(judge({0, 2, 5, 5}, s, 1e9).text, testing::HasSubstr("not ascending"));
  EXPECT_THAT(judge({0, 4, 5, -1}, s, 1e9).text, testing::HasSubstr("id -1 outside"));
  EXPECT_THAT(judge({0, 4, 5, 6}, s, 1e9).text, testing::HasSubstr("id 6 outside"));
}

TEST(TieBound, CoversFp32ErrorsOfScoresWithoutBeingVacuous) {
  // One group of two heads, d = 2, l = 4, l' = 8: scores by Eqs. 8 to 10 in fp32 and in fp64 from
  // the same fp32 inputs.
  constexpr SelectionShape shape{
      .group_size = 2, .block_size = 4, .block_stride = 2, .sel_block_size = 8};
  at::Generator generator = make_generator(3);
  const int64_t tokens = 64, blocks = 31;
  const Tensor q = make_data({1, tokens, 2, 32}, DataKind::kNormal, generator, at::kFloat);
  const Tensor k = make_data({1, blocks, 1, 32}, DataKind::kNormal, generator, at::kFloat);
  const auto group_p = [&](at::ScalarType type) {
    const Tensor logits = at::einsum("bthd,bnkd->bthn", {q.to(type), k.to(type)}) / std::sqrt(32.0);
    const Tensor t = at::arange(tokens).view({tokens, 1}), last = at::arange(blocks) * 2 + 3;
    const Tensor p =
        at::softmax(logits.masked_fill((last > t).view({1, tokens, 1, blocks}), -INFINITY), -1);
    return p.nan_to_num(0).sum(2).to(at::kDouble);  // [1, S, N_c]
  };
  const Tensor bound = selection_tie_bound(q, k, shape).squeeze(-1);
  // A block of l' = 8 gathers at most 4 + 1 p's with weight <= 2, so its score errs by at most 2 *
  // the sum of errors.
  const Tensor err = (group_p(at::kFloat) - group_p(at::kDouble)).abs().sum(-1) * 2;
  EXPECT_TRUE((err <= bound).all().item<bool>());
  EXPECT_GT(err.max().item<double>() * 1e3, bound.max().item<double>());
  EXPECT_EQ(bound.sizes(), at::IntArrayRef({1, tokens}));
}

}  // namespace
}  // namespace suites

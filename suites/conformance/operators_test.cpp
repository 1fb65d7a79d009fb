// Every operator of nsa/ against the oracle, over a seeded sample of configurations and all types.
#include <gtest/gtest.h>

#include "suites/conformance/settings.h"

namespace suites {
namespace {

constexpr int64_t kForwardConfigs = kCornerCases + 12, kGradientConfigs = kCornerCases + 4,
                  kLayerConfigs = 6;

class Operators : public testing::TestWithParam<Point> {};
class Gradients : public testing::TestWithParam<Point> {};
class Layer : public testing::TestWithParam<Point> {};

TEST_P(Operators, ForwardOnNormalData) {
  const OperatorCase one = case_of(GetParam());
  expect_all(check_forward(plain_candidate(), one), one);
}

TEST_P(Operators, ForwardOnSpecialData) {
  // Ties, huge and tiny logits and small integers take turns.
  const auto& kinds = all_data_kinds();
  const DataKind kind = kinds[1 + static_cast<size_t>(GetParam().index) % (kinds.size() - 1)];
  const OperatorCase one = case_of(GetParam(), kind);
  expect_all(check_forward(plain_candidate(), one), one);
}

TEST_P(Gradients, AgreeWithTheOracle) {
  const OperatorCase one = case_of(GetParam());
  expect_all(check_gradients(plain_candidate(), one), one);
}

TEST_P(Layer, ComposesTheOperatorsAndRunsTheRequestedBackends) {
  const OperatorCase one = case_of(GetParam());
  expect_all(check_layer(plain_candidate(), one), one);
}

const auto kOperatorName = [](const auto& one) { return point_name(one.param); };
INSTANTIATE_TEST_SUITE_P(Sample, Operators, testing::ValuesIn(points(kForwardConfigs, all_types())),
                         kOperatorName);
INSTANTIATE_TEST_SUITE_P(Sample, Gradients,
                         testing::ValuesIn(points(kGradientConfigs, all_types())), kOperatorName);
INSTANTIATE_TEST_SUITE_P(Sample, Layer, testing::ValuesIn(points(kLayerConfigs, all_types())),
                         kOperatorName);

}  // namespace
}  // namespace suites

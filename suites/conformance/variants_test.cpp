// Every backend, mode and pack of documents against the oracle and the invariants: suites
// "Backends" and "Modes". Test names begin with the variant, so that --gtest_filter=*/varlen_*
// picks one.
#include <gtest/gtest.h>

#include "suites/conformance/checks/invariant_checks.h"
#include "suites/conformance/settings.h"
#include "suites/faults/variants.h"

namespace suites {
namespace {

struct VariantPoint {
  size_t variant = 0;
  Point point;
};
std::ostream& operator<<(std::ostream& out, const VariantPoint& point) {
  return out << variants()[point.variant].name << "_" << point_name(point.point);
}

/// Variants judged as a whole or not, at some configurations: fp64, and the other types in
/// alternation.
std::vector<VariantPoint> variant_points(bool whole, const std::vector<int64_t>& indices) {
  std::vector<VariantPoint> all;
  for (size_t v = 1; v < variants().size(); ++v) {  // the first is what every other test runs
    if (variants()[v].make().whole != whole) continue;
    if (variants()[v].kernels) {
      for (int64_t index = kKernelCase; index < kKernelCase + kKernelCases; ++index)
        for (const at::ScalarType type : {at::kBFloat16, at::kHalf})
          all.push_back({v, {index, type}});
      continue;
    }
    for (const int64_t index : indices) {
      all.push_back({v, {index, at::kDouble}});
      const auto round = static_cast<size_t>(index) + v;
      all.push_back({v, {index, all_types()[1 + round % (all_types().size() - 1)]}});
    }
  }
  return all;
}

std::vector<int64_t> first(int64_t count) {
  std::vector<int64_t> indices;
  for (int64_t index = 0; index < count; ++index) indices.push_back(index);
  return indices;
}

class VariantTest : public testing::TestWithParam<VariantPoint> {
 protected:
  using Function = Checks (*)(const Candidate&, const OperatorCase&);
  void SetUp() override {
    const Variant& variant = variants()[GetParam().variant];
    if (variant.needs_cuda && test_settings().device.is_cpu()) GTEST_SKIP() << "needs a GPU";
    candidate_ = variant.make();
  }
  void expect(Function function, DataKind kind = DataKind::kNormal) const {
    const OperatorCase one = case_of(GetParam().point, kind);
    expect_all(function(candidate_, one), one);
  }
  DataKind special_kind() const {
    const auto& kinds = all_data_kinds();
    const auto round = static_cast<size_t>(GetParam().point.index) + GetParam().variant;
    return kinds[1 + round % (kinds.size() - 1)];
  }
  bool fp64() const { return GetParam().point.type == at::kDouble; }
  Candidate candidate_;
};

class Backends : public VariantTest {};
class BackendInvariants : public VariantTest {};
class Modes : public VariantTest {};
class ModeInvariants : public VariantTest {};

TEST_P(Backends, ForwardOnNormalData) { expect(check_forward); }
TEST_P(Backends, ForwardOnSpecialData) { expect(check_forward, special_kind()); }
TEST_P(Backends, LayerRunsTheRequestedBackend) { expect(check_layer); }
TEST_P(Backends, HostileRanges) { expect(check_hostile_ranges); }
TEST_P(Backends, GradientsAgreeWithTheOracle) {
  if (candidate_.differentiable) expect(check_gradients);
}

TEST_P(BackendInvariants, FutureTokensChangeNothing) { expect(check_future_perturbation); }
TEST_P(BackendInvariants, FullCoverageIsDenseAttention) { expect(check_full_coverage); }
TEST_P(BackendInvariants, UniformAttentionOverIntegersIsExact) { expect(check_exact_data); }
TEST_P(BackendInvariants, NonFiniteTokensReachOnlyRowsThatAttendThem) { expect(check_non_finite); }
TEST_P(BackendInvariants, PoisonedMemoryChangesNothing) { expect(check_poisoned_memory); }
TEST_P(BackendInvariants, PropertiesOfFp64) {
  if (!fp64()) return;
  expect(check_group_permutation);
  expect(check_mode_agreement);
  if (candidate_.differentiable) expect(check_derivatives);
}

TEST_P(Modes, ForwardOnNormalData) { expect(check_forward); }
TEST_P(Modes, ForwardOnSpecialData) { expect(check_forward, special_kind()); }
TEST_P(Modes, GradientsAgreeWithTheOracle) { expect(check_gradients); }
TEST_P(Modes, AgreeWithBatched) {
  if (fp64()) expect(check_mode_agreement);
}

TEST_P(ModeInvariants, FutureTokensChangeNothing) { expect(check_future_perturbation); }
TEST_P(ModeInvariants, FullCoverageIsDenseAttention) { expect(check_full_coverage); }
TEST_P(ModeInvariants, UniformAttentionOverIntegersIsExact) { expect(check_exact_data); }
TEST_P(ModeInvariants, NonFiniteTokensReachOnlyRowsThatAttendThem) { expect(check_non_finite); }
TEST_P(ModeInvariants, PoisonedMemoryChangesNothing) { expect(check_poisoned_memory); }
TEST_P(ModeInvariants, PropertiesOfFp64) {
  if (!fp64()) return;
  expect(check_group_permutation);
  expect(check_derivatives);
}

const auto kName = [](const auto& one) {
  std::ostringstream name;
  name << one.param;
  return name.str();
};
// Corner cases: 3 is S = l+1, 6 is S = l'+1, 9 is S = w+1, 11 is S = 2w.
INSTANTIATE_TEST_SUITE_P(Sample, Backends,
                         testing::ValuesIn(variant_points(false, first(kCornerCases + 8))), kName);
INSTANTIATE_TEST_SUITE_P(Sample, BackendInvariants,
                         testing::ValuesIn(variant_points(false, {3, 6, 9, 11, 12})), kName);
INSTANTIATE_TEST_SUITE_P(Sample, Modes,
                         testing::ValuesIn(variant_points(true, first(kCornerCases + 4))), kName);
INSTANTIATE_TEST_SUITE_P(Sample, ModeInvariants,
                         testing::ValuesIn(variant_points(true, {3, 9, 11})), kName);

}  // namespace
}  // namespace suites

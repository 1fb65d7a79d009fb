// Invariants of docs/semantics.md that need no oracle.
#include <gtest/gtest.h>

#include "suites/conformance/checks/invariant_checks.h"
#include "suites/conformance/settings.h"

namespace suites {
namespace {

constexpr int64_t kConfigs = kCornerCases + 2;

class Invariants : public testing::TestWithParam<Point> {
 protected:
  using Function = Checks (*)(const Candidate&, const OperatorCase&);
  void expect(Function function) const {
    const OperatorCase one = case_of(GetParam());
    expect_all(function(plain_candidate(), one), one);
  }
};
/// The same, for properties that are defined in fp64 only.
class ExactInvariants : public Invariants {};

TEST_P(Invariants, FutureTokensChangeNothing) { expect(check_future_perturbation); }
TEST_P(Invariants, FullCoverageIsDenseAttention) { expect(check_full_coverage); }
TEST_P(Invariants, RotationIsRelativeAndTheSameInEveryHead) { expect(check_rope_property); }
TEST_P(Invariants, DecodeAfterAnyPrefillEqualsTheOracle) { expect(check_decode); }
TEST_P(Invariants, UniformAttentionOverIntegersIsExact) { expect(check_exact_data); }
TEST_P(Invariants, NonFiniteTokensReachOnlyRowsThatAttendThem) { expect(check_non_finite); }
TEST_P(Invariants, PoisonedMemoryChangesNothing) { expect(check_poisoned_memory); }
TEST_P(Invariants, HostileRanges) { expect(check_hostile_ranges); }
TEST_P(ExactInvariants, SwitchesAreHonouredOrRefused) { expect(check_switches); }
TEST_P(ExactInvariants, PermutedGroupsPermuteOutputs) { expect(check_group_permutation); }
TEST_P(ExactInvariants, TokenByTokenEqualsBatched) { expect(check_mode_agreement); }
TEST_P(ExactInvariants, DerivativesMatchDifferences) { expect(check_derivatives); }

const auto kInvariantName = [](const auto& one) { return point_name(one.param); };
INSTANTIATE_TEST_SUITE_P(Sample, Invariants, testing::ValuesIn(points(kConfigs, all_types())),
                         kInvariantName);
INSTANTIATE_TEST_SUITE_P(Sample, ExactInvariants,
                         testing::ValuesIn(points(kConfigs, {at::kDouble})), kInvariantName);

}  // namespace
}  // namespace suites

// Every planted fault is caught by a named check with the code of the fault table, and no check
// fails without a fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "suites/conformance/invariant_checks.h"
#include "suites/conformance/settings.h"
#include "suites/faults/faults.h"

namespace suites {
namespace {

/// S = 2w with choices to make: four selection blocks, three places, one of them free.
OperatorCase fault_case(at::ScalarType type = at::kDouble) {
  OperatorCase one = case_of({0, type});
  one.config = {};
  one.config.window = 16;
  one.config.tokens = 32;
  one.config.sel_block_size = 8;
  one.layout = Layout::kContiguous;
  return one;
}

Checks all_checks(const Candidate& candidate, const OperatorCase& one) {
  Checks all;
  for (const Checks& more : {check_forward(candidate, one), check_gradients(candidate, one),
                             check_layer(candidate, one), check_invariants(candidate, one)})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

/// Details of the failed checks that carry `code`, joined.
std::string details(const Checks& checks, const std::string& code) {
  std::string text;
  for (const Check& check : checks)
    if (!check.ok && check.code == code) text += check.id + ": " + check.detail + "\n";
  return text;
}

TEST(Faults, NoneReportedWithoutOne) {
  for (at::ScalarType type : all_types()) {
    const OperatorCase one = fault_case(type);
    expect_all(all_checks(plain_candidate(), one), one);
  }
}

class PlantedFault : public testing::TestWithParam<size_t> {};

TEST_P(PlantedFault, IsReportedByItsCode) {
  const Fault& fault = fault_table()[GetParam()];
  if (fault.code == std::string_view(code::kSpeedupWithheld)) {
    // Judged where it is timed; here: the arm's output is wrong.
    const Candidate broken = with_fault(plain_candidate(), fault.id);
    const at::Tensor ids = at::zeros({1, 1, 1, 1}, at::kInt), t = at::zeros({1, 1}, at::kLong);
    EXPECT_FALSE(at::equal(broken.ranges(nsa::RangesVersion::kV2, ids, t, 4),
                           plain_candidate().ranges(nsa::RangesVersion::kV2, ids, t, 4)));
    return;
  }
  const Checks checks = all_checks(with_fault(plain_candidate(), fault.id), fault_case());
  EXPECT_NE(details(checks, std::string(fault.code)), "")
      << fault.id << " (" << fault.what << ") was not reported";
}

INSTANTIATE_TEST_SUITE_P(Table, PlantedFault, testing::Range<size_t>(0, fault_table().size()),
                         [](const auto& one) {
                           std::string name(fault_table()[one.param].id);
                           std::replace(name.begin(), name.end(), '/', '_');
                           return name;
                         });

std::string leaks(const char* fault) {
  return details(check_future_perturbation(with_fault(plain_candidate(), fault), fault_case()),
                 code::kCausalityLeak);
}

TEST(Faults, LeakNamesBranchAndFirstPosition) {
  EXPECT_THAT(
      leaks("P03"),
      testing::HasSubstr("branch win: tokens from 1 set to random values change position 0"));
  EXPECT_THAT(leaks("P03"), testing::Not(testing::HasSubstr("branch cmp")));
  EXPECT_THAT(leaks("P03/blocks"), testing::HasSubstr("branch select"));
  EXPECT_THAT(leaks("P03/twice_window"), testing::HasSubstr("branch win"));
}

TEST(Faults, LeakAtTwiceTheWindowIsSilentElsewhere) {
  OperatorCase one = fault_case();
  one.config.window = 15;
  EXPECT_EQ(
      details(check_future_perturbation(with_fault(plain_candidate(), "P03/twice_window"), one),
              code::kCausalityLeak),
      "");
}

TEST(Faults, SelectionFaultsNameTheBlock) {
  EXPECT_THAT(
      details(check_forward(with_fault(plain_candidate(), "forced_block_dropped"), fault_case()),
              code::kOracleMismatch),
      testing::HasSubstr("oracle/select/fp64/block_idx"));
  EXPECT_THAT(details(check_mode_agreement(with_fault(plain_candidate(), "P05"), fault_case()),
                      code::kModeDisagreement),
              testing::HasSubstr("selection set differs"));
}

TEST(Faults, PathProofNamesRequestAndWhatRan) {
  EXPECT_THAT(
      details(check_layer(with_fault(plain_candidate(), "P07"), fault_case()), code::kPathProof),
      testing::HasSubstr("requested v1, ran v2"));
}

TEST(Faults, UnknownIdNamesTheNearest) {
  try {
    with_fault(plain_candidate(), "P3");
    FAIL() << "accepted";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(), testing::HasSubstr("got 'P3'; nearest: P03"));
  }
}

}  // namespace
}  // namespace suites

// Every injected fault is caught by a named check with the code of the fault table, and no check
// fails without a fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "suites/conformance/checks/invariant_checks.h"
#include "suites/conformance/settings.h"
#include "suites/faults/faults.h"

namespace suites {
namespace {

/// S = 2w, three sequences of four selection blocks.
OperatorCase fault_case(at::ScalarType type = at::kDouble) {
  OperatorCase one = case_of({0, type});
  one.config = {};
  one.config.window = 16;
  one.config.tokens = 32;
  one.config.sel_block_size = 8;
  one.config.batch = 3;
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

class InjectedFault : public testing::TestWithParam<size_t> {};

TEST_P(InjectedFault, IsReportedByItsCode) {
  const Fault& fault = fault_table()[GetParam()];
  if (fault.code == std::string_view(code::kSpeedupWithheld)) {
    // Judged where it is timed; here: the arm's output is wrong.
    const Candidate broken = with_fault(plain_candidate(), fault.id);
    const at::Tensor ids = at::zeros({1, 1, 1, 1}, at::kInt), t = at::zeros({1, 1}, at::kLong);
    EXPECT_FALSE(at::equal(broken.ranges(nsa::RangesVersion::kV2, ids, t, 4),
                           plain_candidate().ranges(nsa::RangesVersion::kV2, ids, t, 4)));
    return;
  }
  if (fault.code == "HANG") return;  // judged by the watch of the engine
  OperatorCase one = fault_case();   // data and layout on which the fault shows
  if (fault.id == "ties_to_the_higher") {
    one.kind = DataKind::kTies;
    one.config.tokens = 64;
  }
  if (fault.id == "strides_ignored") one.layout = Layout::kStrided;
  const Checks checks = all_checks(with_fault(plain_candidate(), fault.id), one);
  EXPECT_NE(details(checks, std::string(fault.code)), "")
      << fault.id << " (" << fault.what << ") was not reported";
}

INSTANTIATE_TEST_SUITE_P(Table, InjectedFault, testing::Range<size_t>(0, fault_table().size()),
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

/// Ids of the checks that a fault fails, with the configuration turned a little.
std::string failed_by(const char* fault, Checks (*check)(const Candidate&, const OperatorCase&),
                      const OperatorCase& one = fault_case()) {
  std::string ids;
  for (const Check& each : check(with_fault(plain_candidate(), fault), one))
    if (!each.ok) ids += each.id + "\n";
  return ids;
}

TEST(Faults, EveryInvariantFailsWhenItIsBroken) {
  using testing::HasSubstr;
  EXPECT_THAT(failed_by("window_capped", check_full_coverage), HasSubstr("o_win"));
  EXPECT_THAT(failed_by("first_head_differs", check_group_permutation), HasSubstr("/o/"));
  EXPECT_THAT(failed_by("sum_too_long", check_exact_data), HasSubstr("o_win"));
  EXPECT_THAT(failed_by("graph_broken", check_derivatives), HasSubstr("/sel/"));
  EXPECT_THAT(failed_by("graph_broken", check_gradients), HasSubstr("d_k_sel"));
  EXPECT_THAT(failed_by("masked_by_multiplication", check_non_finite), HasSubstr("v_sel"));
  EXPECT_THAT(failed_by("masked_by_multiplication", check_future_perturbation), HasSubstr("sel"));
  EXPECT_THAT(failed_by("empty_row_filled", check_hostile_ranges), HasSubstr("empty_rows"));
  EXPECT_THAT(failed_by("input_overwritten", check_poisoned_memory), HasSubstr("/inputs/"));
  EXPECT_THAT(failed_by("read_past_the_end", check_poisoned_memory), HasSubstr("/results/"));
  EXPECT_THAT(failed_by("documents_joined", check_mode_agreement), HasSubstr("/o/"));
  EXPECT_THAT(failed_by("P08", check_switches), HasSubstr("/unknown/"));
  EXPECT_THAT(failed_by("P08/dead", check_switches), HasSubstr("/ignored/"));
  if (fault_case().device.is_cpu()) {  // fresh memory is poisoned on a CPU
    EXPECT_THAT(failed_by("row_never_written", check_poisoned_memory), HasSubstr("/results/"));
  }
}

TEST(Faults, TiesAndStridesAreSeenOnTheirData) {
  OperatorCase ties = fault_case();
  ties.kind = DataKind::kTies;
  ties.config.tokens = 64;  // eight blocks: free ones compete for one place
  EXPECT_THAT(failed_by("ties_to_the_higher", check_forward, ties),
              testing::HasSubstr("block_idx_given_scores"));
  OperatorCase strided = fault_case();
  strided.layout = Layout::kStrided;
  EXPECT_THAT(failed_by("strides_ignored", check_forward, strided), testing::HasSubstr("o_win"));
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

#include "harness/stats/ab.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "harness/stats/distributions.h"

namespace harness::stats {
namespace {

TEST(PairedLogRatios, MediansPerProcess) {
  // medians 2 and 1: the candidate takes half the time, r = ln(1/2)
  const auto ratios = paired_log_ratios(std::vector<ArmTimes>{{"g01", {1, 2, 9}, {1, 1, 3}}});
  ASSERT_EQ(ratios.size(), 1u);
  EXPECT_EQ(ratios[0].process, "g01");
  EXPECT_EQ(ratios[0].baseline_median, 2);
  EXPECT_EQ(ratios[0].candidate_median, 1);
  EXPECT_DOUBLE_EQ(ratios[0].log_ratio, std::log(.5));
}

/// Rounds of two samples an arm: the machine is ten times slower in rounds 0 to 3, and in the
/// second sample of round 4.
ArmTimes disturbed(size_t rounds) {
  ArmTimes times{"g01", {}, {}};
  for (size_t i = 0; i < rounds; ++i)
    for (int sample = 0; sample < 2; ++sample) {
      const double slow = i < 4 ? 10 : 1;
      times.baseline.push_back(slow);
      times.candidate.push_back(1.2 * slow * (i == 4 && sample == 1 ? 10 : 1));
      times.baseline_rounds.push_back(static_cast<int64_t>(i));
      times.candidate_rounds.push_back(static_cast<int64_t>(i));
    }
  return times;
}

TEST(PairedLogRatios, ManyRoundsAreJudgedRoundByRound) {
  const auto seven = paired_log_ratios(std::vector{disturbed(7)});
  EXPECT_EQ(seven[0].rounds, 7u);
  EXPECT_NEAR(seven[0].log_ratio, std::log(1.2), 1e-12);
  const auto four = paired_log_ratios(std::vector{disturbed(4)});
  EXPECT_EQ(four[0].rounds, 0u) << "too few for a median of rounds";
  EXPECT_NEAR(four[0].log_ratio, std::log(1.2), 1e-12);
  ArmTimes unknown = disturbed(7);
  unknown.baseline_rounds.pop_back();
  EXPECT_EQ(paired_log_ratios(std::vector{unknown})[0].rounds, 0u);
}

// The candidate stopped after four of seven rounds: what the baseline measured later, on a machine
// ten times as fast, is not compared with it.
TEST(PairedLogRatios, ArmsOfDifferentLengthMeetInTheirCommonRounds) {
  for (const size_t left : {4u, 6u}) {
    ArmTimes times = disturbed(7);
    times.candidate.resize(2 * left);
    times.candidate_rounds.resize(2 * left);
    const auto ratios = paired_log_ratios(std::vector{times});
    EXPECT_NEAR(ratios[0].log_ratio, std::log(1.2), 1e-12) << left;
    EXPECT_EQ(ratios[0].rounds, left < kRoundsForMedian ? 0u : left);
  }
  ArmTimes apart = disturbed(7);
  for (int64_t& round : apart.candidate_rounds) round += 100;
  EXPECT_THROW(paired_log_ratios(std::vector{apart}), std::invalid_argument)
      << "no round has both arms";
}

TEST(PairedLogRatios, RejectsImpossibleTimesByName) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const double bad : {0.0, -1.0, inf, -inf, std::numeric_limits<double>::quiet_NaN()}) {
    try {
      paired_log_ratios(std::vector<ArmTimes>{{"g03", {1, 2}, {1, bad}}});
      FAIL() << bad;
    } catch (const std::invalid_argument& e) {
      EXPECT_THAT(e.what(), testing::HasSubstr("candidate arm in process 'g03': sample 2 is"));
      EXPECT_THAT(e.what(), testing::HasSubstr("must be positive and finite"));
    }
    EXPECT_THROW(paired_log_ratios(std::vector<ArmTimes>{{"g03", {bad}, {1}}}),
                 std::invalid_argument);
  }
  EXPECT_THROW(paired_log_ratios(std::vector<ArmTimes>{{"g03", {}, {1}}}), std::invalid_argument);
}

// Complete separation must decide at every n that can decide, and at no smaller one.
TEST(CompareArms, CompleteSeparationForEveryN) {
  for (int n = 1; n <= 40; ++n) {
    std::vector<double> faster, slower;
    for (int i = 0; i < n; ++i) {
      faster.push_back(std::log(.5) - .001 * i);
      slower.push_back(std::log(2.0) + .001 * i);
    }
    const bool decides = n >= 8;
    EXPECT_EQ(compare_arms(faster, kGpuMargin).verdict,
              decides ? AbVerdict::kFaster : AbVerdict::kInconclusive)
        << n;
    EXPECT_EQ(compare_arms(slower, kGpuMargin).verdict,
              decides ? AbVerdict::kSlower : AbVerdict::kInconclusive)
        << n;
  }
}

TEST(CompareArms, EquivalentNeedsTheWholeIntervalInside) {
  const std::vector<double> same(10, 0.0);
  EXPECT_EQ(compare_arms(same, kGpuMargin).verdict, AbVerdict::kEquivalent);
  // +2 % in every process: outside 1 %, inside 5 %
  const std::vector<double> two_percent(10, std::log(1.02));
  EXPECT_EQ(compare_arms(two_percent, kGpuMargin).verdict, AbVerdict::kSlower);
  EXPECT_EQ(compare_arms(two_percent, kCpuMargin).verdict, AbVerdict::kEquivalent);
  // spread across the margin
  std::vector<double> spread;
  for (int i = 0; i < 10; ++i) spread.push_back(.004 * i);
  EXPECT_EQ(compare_arms(spread, kGpuMargin).verdict, AbVerdict::kInconclusive);
}

TEST(CompareArms, NoiseFloorWidensTheMargin) {
  const std::vector<double> two_percent(10, std::log(1.02));
  const AbResult result = compare_arms(two_percent, kGpuMargin, .03);
  EXPECT_EQ(result.margin, .03);
  EXPECT_EQ(result.verdict, AbVerdict::kInconclusive) << "noise makes no arms equal";
  const std::vector<double> same(10, 0.0), far(10, std::log(1.05));
  EXPECT_EQ(compare_arms(same, kGpuMargin, .03).verdict, AbVerdict::kEquivalent);
  EXPECT_EQ(compare_arms(far, kGpuMargin, .03).verdict, AbVerdict::kSlower);
}

TEST(AbVerdict, NoIntervalOrNaNDecidesNothing) {
  EXPECT_EQ(ab_verdict(std::nullopt, .01, .01), AbVerdict::kInconclusive);
  EXPECT_EQ(ab_verdict(Interval{NAN, NAN, .99}, .01, .01), AbVerdict::kInconclusive);
  EXPECT_EQ(ab_verdict(Interval{0, 0, .99}, NAN, NAN), AbVerdict::kInconclusive);
  EXPECT_THROW(compare_arms(std::vector<double>{0, NAN}, .01), std::invalid_argument);
}

// sd of {-1, 0, 1} % is 1 %; n = 3 has no 99 % interval, so the floor is the largest ratio, and
// MDE = (t_{.995,2} + t_{.8,2}) * 1 % / sqrt(3) = (9.9248 + 1.0607) * .0057735 = 6.34 %.
TEST(NoiseFloor, ByHand) {
  const NoiseFloor noise = noise_floor(std::vector<double>{-.01, 0, .01});
  EXPECT_NEAR(noise.floor, .01, 1e-15);
  EXPECT_NEAR(noise.sd, .01, 1e-15);
  ASSERT_TRUE(noise.mde);
  EXPECT_NEAR(*noise.mde, .06342, 1e-5);
  EXPECT_FALSE(noise_floor(std::vector<double>{.01}).mde);
}

}  // namespace
}  // namespace harness::stats

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "suites/instrument/ceilings.h"
#include "suites/instrument/cupti/activity_buffers.h"
#include "suites/instrument/cupti/activity_collector.h"
#include "suites/instrument/dilation.h"

namespace suites {
namespace {

TEST(ActivityBuffers, HandsOutUpToTheMostAndCountsRefusals) {
  ActivityBuffers buffers(2);
  buffers.prepare(1);
  uint8_t* first = buffers.request();
  uint8_t* second = buffers.request();
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(second) % 8, 0u);
  EXPECT_EQ(buffers.request(), nullptr);
  EXPECT_EQ(buffers.refused(), 1);
  buffers.complete(first, 100);
  buffers.complete(second, 0);  // nothing in it: free again
  const auto filled = buffers.take_filled();
  ASSERT_EQ(filled.size(), 1u);
  EXPECT_EQ(filled[0].data, first);
  EXPECT_EQ(filled[0].bytes, 100u);
  EXPECT_EQ(buffers.request(), second);
  first[0] = first[99] = 7;
  buffers.recycle(filled[0]);
  EXPECT_EQ(buffers.request(), first);
  EXPECT_EQ(first[0] + first[99], 0) << "blocks are handed out zeroed";
}

TEST(Dilation, MedianWithItsInterval) {
  std::vector<OffOnPair> pairs;
  for (const double excess : {5.0, 1.0, 2.0, 4.0, 3.0, 0.0}) pairs.push_back({100, 100 + excess});
  const Dilation six = measure_dilation(pairs);
  EXPECT_NEAR(six.pct, 2.5, 1e-9);
  EXPECT_NEAR(six.lo_pct, 0, 1e-9);  // six pairs: the smallest and the largest, 96.9 %
  EXPECT_NEAR(six.hi_pct, 5, 1e-9);
  EXPECT_NEAR(six.level, 1 - 2.0 / 64, 1e-12);
  pairs.push_back({100, 106});
  pairs.push_back({100, 107});
  pairs.push_back({100, 108});
  const Dilation nine = measure_dilation(pairs);  // 1 - 2 * 10 / 512 = 0.961 without the outermost
  EXPECT_NEAR(nine.lo_pct, 1, 1e-9);
  EXPECT_NEAR(nine.hi_pct, 7, 1e-9);
  EXPECT_NEAR(nine.level, 1 - 2 * 10.0 / 512, 1e-12);
  pairs.resize(5);
  EXPECT_THROW(measure_dilation(pairs), c10::Error);
  EXPECT_THROW(measure_dilation(std::vector<OffOnPair>(6)), c10::Error);
}

TEST(Dilation, ArmsAlternateAndReportTheirMedian) {
  std::string order;
  std::vector<double> ms = {90, 1, 5, 2, 80, 4, 4, 9,   // off, then on
                            70, 3, 1, 2, 60, 7, 6, 5};  // on, then off
  size_t next = 0;
  const SwitchedStep step{.run_ms =
                              [&](const char* what) {
                                order += what[1] == 'f' ? 'f' : 'n';
                                return ms.at(next++);
                              },
                          .on = [&] { order += '('; },
                          .off = [&] { order += ')'; }};
  const auto pairs = time_off_on(step, 2, 3);
  EXPECT_EQ(order, "ffff(nnnn)(nnnn)ffff");
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs[0].off_ms, 2) << "the step behind a switch does not count";
  EXPECT_EQ(pairs[0].on_ms, 4);
  EXPECT_EQ(pairs[1].on_ms, 2);
  EXPECT_EQ(pairs[1].off_ms, 6);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_THROW(median({}), c10::Error);
}

TEST(Ceilings, ArePositiveOnACpu) {
  const auto ceilings = measure_ceilings(at::kCPU, at::kFloat);
  EXPECT_GT(ceilings.tflop_s, 0);
  EXPECT_GT(ceilings.gb_s, 0);
}

TEST(ActivityCollector, ReportsWhyItCannotRecord) {
  try {
    const ActivityCollector collector;
    GTEST_SKIP() << "this machine has a GPU and a CUPTI that may be used";
  } catch (const CollectorUnavailable& why) {
    EXPECT_THAT(why.code(), testing::AnyOf("CUPTI_UNAVAILABLE", "CUPTI_BUSY", "CUPTI_PERMISSION"));
    EXPECT_STRNE(why.what(), "");
  }
}

}  // namespace
}  // namespace suites

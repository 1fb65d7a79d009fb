#include "harness/trace/analysis/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "harness/schema/error.h"
#include "harness/trace/analysis/roofline.h"
#include "harness/trace/analysis/testing.h"
#include "harness/trace/chrome.h"
#include "harness/trace/testing.h"

namespace harness::trace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Intervals, UnionsPartsAndGaps) {
  const std::vector<Interval> merged = merge({{5, 9}, {0, 2}, {2, 4}, {7, 12}, {20, 20}});
  EXPECT_THAT(merged, ElementsAre(Interval{0, 4}, Interval{5, 12}));
  EXPECT_EQ(busy({{0, 10}, {5, 15}}), 15);
  EXPECT_EQ(sum({{0, 10}, {5, 15}}), 20);
  EXPECT_THAT(intersect({{0, 4}, {5, 12}}, {{3, 6}, {11, 30}}),
              ElementsAre(Interval{3, 4}, Interval{5, 6}, Interval{11, 12}));
  EXPECT_THAT(clip({{0, 4}, {5, 12}}, {3, 8}), ElementsAre(Interval{3, 4}, Interval{5, 8}));
  EXPECT_THAT(gaps({{0, 4}, {6, 9}}, {2, 12}), ElementsAre(Interval{4, 6}, Interval{9, 12}));
  EXPECT_THAT(gaps({}, {2, 12}), ElementsAre(Interval{2, 12}));
}

/// Two streams; the first kernel of `b` runs while that of `a` does.
TraceBuilder two_streams() {
  TraceBuilder t;
  t.range("step", 1, 0, 1000).range("a", 1, 100, 300).range("b", 1, 300, 500);
  t.launch(1, 110, 1).launch(1, 310, 2).launch(1, 320, 3);
  t.call("cudaDeviceSynchronize_v3020", 1, 650, 980, 4);
  t.kernel("ka<1>", 7, 200, 400, 1).kernel("kb<1>", 8, 350, 450, 2).kernel("kb<2>", 7, 600, 700, 3);
  return t;
}

TEST(Profile, BusySpanAndSumOfOverlappingKernels) {
  TraceBuilder t = two_streams();
  const Profile p = profile(t.trace(), "step");
  EXPECT_EQ(p.steps, 1);
  EXPECT_EQ(p.wall, 1000);
  EXPECT_EQ(p.busy, 350);  // [200, 450) and [600, 700)
  EXPECT_EQ(p.kernels, 3);
  EXPECT_EQ(p.launches, 3);
  EXPECT_EQ(p.syncs, 1);
  EXPECT_EQ(row(p, "step").busy, 350);
  EXPECT_EQ(row(p, "step").sum, 400);
  EXPECT_EQ(row(p, "step").span, 500);
  EXPECT_EQ(row(p, "step").self, 0);
  EXPECT_EQ(row(p, "step").syncs, 1);
  EXPECT_EQ(row(p, "a").self, 200);
  EXPECT_EQ(row(p, "b").self, 200);
  EXPECT_EQ(row(p, "b").span, 350);
  EXPECT_EQ(row(p, "b").launches, 2);
  EXPECT_EQ(row(p, "a").host, 200);
  EXPECT_NEAR(p.shares_sum_pct, 100 * 400 / 350.0, 1e-9);
  EXPECT_THAT(check_shares(p, 2), HasSubstr("ran at the same time"));
  EXPECT_EQ(check_shares(p, 15), "");
}

TEST(Profile, GapsHaveCauses) {
  TraceBuilder t = two_streams();
  const Profile p = profile(t.trace(), "step");
  EXPECT_EQ(p.idle.host_wait, 200);    // in front of the first launch at 110
  EXPECT_EQ(p.idle.kernel_wait, 150);  // asked for at 320, shorter than 2 us
  EXPECT_EQ(p.idle.sync, 300);         // the host waited at 700 and asked for nothing
  EXPECT_EQ(p.idle.total(), 650);
  EXPECT_DOUBLE_EQ(p.busy_pct(), 35);
  EXPECT_DOUBLE_EQ(p.idle_pct(), 65);
}

TEST(Profile, LongGapsBehindAnEventOrWithoutAReason) {
  TraceBuilder t;
  t.range("step", 1, 0, 100'000).launch(1, 0, 1).launch(1, 10, 2).launch(1, 20, 3);
  t.kernel("k", 7, 0, 10'000, 1).kernel("k", 8, 20'000, 30'000, 2);
  t.kernel("k", 7, 50'000, 100'000, 3);
  t.trace().waits.push_back({.at = 5'000, .stream = 8});
  const Profile p = profile(t.trace(), "step");
  EXPECT_EQ(p.idle.event_wait, 10'000);
  EXPECT_EQ(p.idle.other, 20'000);
  EXPECT_EQ(p.idle.total(), 30'000);
}

TEST(Profile, SharesThatDoNotReachAHundredNameTheUnattributedPart) {
  TraceBuilder t;
  t.range("step", 1, 0, 100).range("a", 1, 0, 50).launch(1, 5, 1).launch(1, 60, 9);
  t.kernel("k", 7, 10, 40, 1).kernel("stray", 7, 50, 60, 77);
  const Profile p = profile(t.trace(), "step");
  EXPECT_EQ(p.busy, 40);
  EXPECT_EQ(p.unattributed, 10);
  EXPECT_EQ(p.unmatched_work, 1);
  EXPECT_EQ(p.lost_launches, 1);  // correlation 9 left no work
  EXPECT_DOUBLE_EQ(p.shares_sum_pct, 75);
  EXPECT_THAT(check_shares(p, 2), HasSubstr("25.000000 % of the device's time belongs to no"));
}

TEST(Profile, KernelsOfOneTemplateAreOneRow) {
  TraceBuilder t = two_streams();
  const Profile p = profile(t.trace(), "step");
  ASSERT_EQ(p.top.size(), 2u);
  const KernelRow& kb = p.top[1];
  EXPECT_EQ(p.top[0].name, "ka");
  EXPECT_EQ(kb.name, "kb");
  EXPECT_EQ(kb.range, "b");
  EXPECT_EQ(kb.count, 2);
  EXPECT_EQ(kb.sum, 200);
  EXPECT_EQ(kb.min, 100);
  EXPECT_EQ(kb.max, 100);
  EXPECT_DOUBLE_EQ(kb.share_pct, 50);
}

TEST(Profile, StepsAddUpAndLateWorkCountsWhereItWasAskedFor) {
  TraceBuilder t;
  t.range("step", 1, 0, 100).range("step", 1, 200, 300).range("a", 1, 10, 90);
  t.launch(1, 20, 1).launch(1, 210, 2).call("cudaMemcpyAsync_v3020", 1, 220, 225, 3);
  t.kernel("k", 7, 100, 150, 1);  // after its step
  t.kernel("k", 7, 230, 240, 2).copy("DtoH", 7, 240, 260, 3, 40);
  const Profile p = profile(t.trace(), "step");
  EXPECT_EQ(p.steps, 2);
  EXPECT_EQ(p.wall, 200);
  EXPECT_EQ(p.busy, 80);
  EXPECT_EQ(row(p, "a").self, 50);
  EXPECT_EQ(row(p, "step").count, 2);
  EXPECT_EQ(row(p, "step").span, 80);  // 50 and 30
  ASSERT_EQ(p.copy_rows.size(), 1u);
  EXPECT_EQ(p.copy_rows[0].bytes, 40);
  EXPECT_DOUBLE_EQ(p.copy_rows[0].gb_s(), 2);
  EXPECT_EQ(p.copies, 1);
  EXPECT_DOUBLE_EQ(p.per_step(p.launches), 1);
  EXPECT_DOUBLE_EQ(p.busy_pct(), 15);  // inside the steps only
}

TEST(Profile, CommunicationExposedAndOverlapped) {
  TraceBuilder t;
  t.range("step", 1, 0, 300).launch(1, 0, 1).launch(1, 1, 2).launch(1, 2, 3);
  t.kernel("ncclDevKernel_AllReduce(x)", 9, 10, 110, 1).kernel("gemm", 7, 60, 130, 2);
  t.kernel("NCCLKERNEL_SendRecv", 9, 200, 210, 3);
  const Profile p = profile(t.trace(), "step");
  EXPECT_EQ(p.communication.kernels, 2);
  EXPECT_EQ(p.communication.busy, 110);
  EXPECT_EQ(p.communication.overlapped, 50);
  EXPECT_EQ(p.communication.exposed(), 60);
}

TEST(Profile, CommunicationThatNothingHidesIsExposed) {
  TraceBuilder t;
  t.range("step", 1, 0, 300).launch(1, 0, 1).launch(1, 1, 2);
  t.kernel("gemm", 7, 10, 110, 1).kernel("ncclDevKernel_AllReduce(x)", 9, 110, 210, 2);
  const Profile p = profile(t.trace(), "step");
  EXPECT_EQ(p.communication.busy, 100);
  EXPECT_EQ(p.communication.overlapped, 0);
}

/// Ranges of their own would claim the same time twice.
TEST(Profile, HiddenCommunicationIsInNoShare) {
  TraceBuilder t;
  t.range("step", 1, 0, 300).range("send", 1, 10, 20).range("compute", 1, 30, 40);
  t.launch(1, 12, 1).launch(1, 31, 2).launch(1, 32, 3);
  t.kernel("ncclDevKernel_AllReduce(x)", 9, 50, 150, 1).kernel("gemm", 7, 60, 120, 2);
  t.copy("DtoD", 7, 120, 130, 3, 8);
  const Profile p = profile(t.trace(), "step");
  std::map<std::string, Ns> self;
  for (const RangeRow& row : p.ranges) self[row.name] = row.self;
  EXPECT_EQ(self["send"], 30) << "10 before the product, 20 behind the copy";
  EXPECT_EQ(self["compute"], 70);
  EXPECT_EQ(p.busy, 100);
  EXPECT_EQ(check_shares(p, 0.01), "");
}

TEST(Profile, CountsShortKernelsAndNodesOfGraphs) {
  TraceBuilder t;
  t.range("step", 1, 0, 300).call("cudaGraphLaunch_v10000", 1, 0, 50, 1);
  t.kernel("k", 7, 60, 80, 1, 4).kernel("k", 7, 80, 180, 1, 5);
  const Profile p = profile(t.trace(), "step");
  EXPECT_EQ(p.graph_kernels, 2);
  EXPECT_EQ(p.launches, 1);
  EXPECT_EQ(p.short_kernels, 1);
  EXPECT_EQ(p.lost_launches, 0);
}

TEST(Profile, RefusesTracesItCannotJudge) {
  TraceBuilder none;
  none.range("other", 1, 0, 10);
  EXPECT_THAT([&] { profile(none.trace(), "step"); },
              ThrowsMessage<Error>(HasSubstr("must have ranges 'step', got none")));
  TraceBuilder devices = two_streams();
  devices.trace().work[1].device = 1;
  EXPECT_THAT([&] { profile(devices.trace(), "step"); },
              ThrowsMessage<Error>(HasSubstr("one device, got 0 and 1")));
}

TEST(Roofline, TheHigherNeedDecides) {
  const Ceilings ceilings{.tflop_s = 100, .gb_s = 1000};
  // 1e9 operations need 10 us, 4e6 bytes 4 us.
  const auto compute = roofline({.flops = 1e9, .bytes = 4e6}, 20'000, ceilings);
  ASSERT_TRUE(compute.has_value());
  EXPECT_DOUBLE_EQ(compute->pct, 50);
  EXPECT_DOUBLE_EQ(compute->tflop_s, 50);
  EXPECT_DOUBLE_EQ(compute->gb_s, 200);
  EXPECT_FALSE(compute->memory_bound);
  const auto memory = roofline({.flops = 1e9, .bytes = 4e7}, 80'000, ceilings);
  ASSERT_TRUE(memory.has_value());
  EXPECT_DOUBLE_EQ(memory->pct, 50);
  EXPECT_TRUE(memory->memory_bound);
  EXPECT_FALSE(roofline({.flops = 1e9, .bytes = 0}, 0, ceilings).has_value());
  EXPECT_FALSE(roofline({}, 10, ceilings).has_value());
  EXPECT_FALSE(roofline({.flops = 1, .bytes = 1}, 10, {}).has_value());
}

TEST(Chrome, OverlappingWorkOfAStreamGetsRows) {
  TraceBuilder t;
  t.range("step", 1, 1000, 2000).range("step", 1, 3000, 4000).launch(1, 1100, 1);
  t.kernel("a \"quoted\"\x01\xff", 7, 1200, 1400, 1).kernel("b", 7, 1300, 1500, 1);
  t.kernel("c", 7, 1400, 1450, 1).kernel("late", 7, 3100, 3200, 1);
  std::ostringstream out;
  write_chrome(out, t.trace(), "step", 1);
  const auto json = nlohmann::json::parse(out.str());
  std::map<std::string, std::pair<int64_t, std::string>> slices;  // name -> track, time
  std::vector<std::string> tracks;
  int64_t arrows = 0;
  for (const auto& event : json["traceEvents"]) {
    const std::string phase = event["ph"];
    arrows += phase == "s";
    if (phase == "X") slices[event["name"]] = {event["tid"], event["ts"].dump()};
    if (phase == "M" && event["name"] == "thread_name") tracks.push_back(event["args"]["name"]);
  }
  EXPECT_THAT(tracks, ElementsAre("thread of the steps", "stream 7", "stream 7 (b)"));
  EXPECT_EQ(slices["b"].first, slices["c"].first + 1);
  EXPECT_EQ(slices["b"].second, "0.3");
  EXPECT_EQ(slices.count("late"), 0u);
  EXPECT_EQ(arrows, 3);
  EXPECT_THAT([&] { write_chrome(out, t.trace(), "none", 1); },
              ThrowsMessage<Error>(HasSubstr("at least one step")));
}

}  // namespace
}  // namespace harness::trace

#include "harness/trace/analysis/attribution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/schema/error.h"
#include "harness/trace/analysis/path_proof.h"
#include "harness/trace/testing.h"

namespace harness::trace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::string range_name(const Trace& trace, int64_t range) {
  return range == kNone ? "" : trace.name_of(trace.ranges[static_cast<size_t>(range)].name);
}

std::vector<std::string> ranges_of_work(const Trace& trace) {
  std::vector<std::string> names;
  for (const int64_t range : attribute(trace, "step").range_of_work)
    names.push_back(range_name(trace, range));
  return names;
}

TEST(Attribution, WorkBelongsToTheInnermostRangeOfItsLaunchWheneverItRan) {
  TraceBuilder b;
  b.range("step", 1, 0, 100).range("outer", 1, 10, 60).range("inner", 1, 20, 40);
  b.launch(1, 12, 1).launch(1, 25, 2).launch(1, 40, 3).launch(1, 60, 4);
  b.kernel("a", 7, 70, 80, 1).kernel("b", 7, 80, 90, 2).kernel("c", 7, 90, 95, 3);
  b.kernel("d", 7, 150, 160, 4);
  // 40 is the end of `inner` and no longer inside; 60 the end of `outer`.
  EXPECT_THAT(ranges_of_work(b.trace()), ElementsAre("outer", "inner", "outer", "step"));
  EXPECT_THAT(attribute(b.trace(), "step").unseen_capture, ElementsAre(false, false, false, false));
}

TEST(Attribution, AnotherThreadHangsBelowWhatTheStepsHadOpen) {
  TraceBuilder b;
  b.range("step", 1, 0, 100).range("backward", 1, 20, 80).range("op.backward", 2, 30, 50);
  b.launch(2, 25, 1).launch(2, 35, 2).launch(3, 45, 3);
  b.kernel("a", 7, 26, 30, 1).kernel("b", 7, 36, 40, 2).kernel("c", 7, 46, 50, 3);
  EXPECT_THAT(ranges_of_work(b.trace()), ElementsAre("backward", "op.backward", "backward"));
  const Attribution found = attribute(b.trace(), "step");
  EXPECT_EQ(range_name(b.trace(), found.parent[2]), "backward");
  EXPECT_THAT(found.step, ElementsAre(0, 0, 0));
}

TEST(Attribution, NodesWhoseCaptureWasNotSeenBelongToTheRangeOfTheLaunch) {
  TraceBuilder b;
  b.range("step", 1, 0, 100).range("replay", 1, 10, 30);
  b.call("cudaGraphLaunch_v10000", 1, 15, 20, 9);
  b.kernel("a", 7, 40, 45, 9, 1).kernel("b", 7, 45, 50, 9, 2).kernel("c", 7, 50, 55, 9, 3);
  EXPECT_THAT(ranges_of_work(b.trace()), ElementsAre("replay", "replay", "replay"));
  EXPECT_THAT(attribute(b.trace(), "step").unseen_capture, ElementsAre(true, true, true));
}

TEST(Attribution, WhatHasNoCallOrNoRangeBelongsToNone) {
  TraceBuilder b;
  b.range("step", 1, 50, 100).launch(1, 10, 1);
  b.kernel("before", 7, 20, 30, 1).kernel("orphan", 7, 60, 70, 77).kernel("zero", 7, 70, 75, 0);
  b.call("cudaLaunchKernel", 1, 55, 56, 0);
  EXPECT_THAT(ranges_of_work(b.trace()), ElementsAre("", "", ""));
}

TEST(Attribution, EmptyRangesHoldNothing) {
  TraceBuilder b;
  b.range("step", 1, 0, 100).range("empty", 1, 20, 20).launch(1, 20, 1).kernel("a", 7, 30, 40, 1);
  EXPECT_THAT(ranges_of_work(b.trace()), ElementsAre("step"));
}

TEST(Attribution, RefusesRangesThatCannotBe) {
  TraceBuilder crossed;
  crossed.range("step", 1, 0, 100).range("a", 1, 10, 50).range("b", 1, 40, 60);
  EXPECT_THAT([&] { attribute(crossed.trace(), "step"); },
              ThrowsMessage<Error>(HasSubstr("range 'b' at 40 ns ends after the range around it")));
  TraceBuilder threads;
  threads.range("step", 1, 0, 10).range("step", 2, 20, 30);
  EXPECT_THAT([&] { attribute(threads.trace(), "step"); },
              ThrowsMessage<Error>(HasSubstr("must be on one thread, got 1 and 2")));
  TraceBuilder nested;
  nested.range("step", 1, 0, 100).range("step", 1, 20, 30);
  EXPECT_THAT([&] { attribute(nested.trace(), "step"); },
              ThrowsMessage<Error>(HasSubstr("steps must not nest")));
}

TEST(NestedCalls, ADriverCallInsideARuntimeCallCountsOnce) {
  TraceBuilder b;
  b.call("cudaLaunchKernel_v7000", 1, 10, 20, 1).call("cuLaunchKernelEx", 1, 12, 18, 1);
  b.call("cuLaunchKernel", 1, 30, 40, 2).call("cuLaunchKernel", 2, 12, 18, 3);
  b.call("cudaStreamSynchronize", 1, 13, 14, 4);
  EXPECT_THAT(nested_calls(b.trace()), ElementsAre(false, true, false, false, false));
}

TEST(PathProof, ExpectedAndForbiddenKernelsOfARange) {
  TraceBuilder b;
  b.range("step", 1, 0, 100).range("sel", 1, 10, 30).range("deeper", 1, 12, 20);
  b.launch(1, 13, 1).launch(1, 25, 2).launch(1, 50, 3);
  b.kernel("void ns::row_attention<softmax::fmha, 64>(int)", 7, 30, 60, 1)
      .kernel("gather_k", 7, 60, 70, 2);
  b.kernel("softmax_warp<float>", 7, 70, 80, 3);
  const Attribution found = attribute(b.trace(), "step");
  const auto prove = [&](PathRule rule) { return prove_path(b.trace(), found, rule); };
  EXPECT_TRUE(prove({"sel", {"row_attention"}, {"softmax|fmha"}}).ok);
  EXPECT_THAT(prove({"sel", {}, {}}).kernels, ElementsAre("ns::row_attention", "gather_k"));
  const PathProof missing = prove({"sel", {"fmha|flash"}, {}});
  EXPECT_FALSE(missing.ok);
  EXPECT_EQ(missing.detail, "no kernel 'fmha|flash'; range sel ran ns::row_attention, gather_k");
  const PathProof forbidden = prove({"step", {}, {"softmax"}});
  EXPECT_FALSE(forbidden.ok);
  EXPECT_THAT(forbidden.detail, HasSubstr("kernel 'softmax_warp' is forbidden ('softmax')"));
  const PathProof absent = prove({"nowhere", {}, {"softmax"}});
  EXPECT_FALSE(absent.ok);
  EXPECT_EQ(absent.detail, "range nowhere launched no kernel");
}

TEST(Names, KindsOfCalls) {
  const std::pair<const char*, CallKind> cases[] = {
      {"cudaLaunchKernel_v7000", CallKind::kLaunch},
      {"cudaLaunchKernelExC_v11060", CallKind::kLaunch},
      {"cuLaunchKernel", CallKind::kLaunch},
      {"cudaLaunchHostFunc_v10000", CallKind::kOther},
      {"__cudaPushCallConfiguration", CallKind::kOther},
      {"cudaGraphLaunch_v10000", CallKind::kGraphLaunch},
      {"cuGraphLaunch", CallKind::kGraphLaunch},
      {"cudaGraphAddKernelNode_v10000", CallKind::kOther},
      {"cudaMemcpyAsync_v3020", CallKind::kCopy},
      {"cudaMemcpy_v3020", CallKind::kSync},
      {"cuMemcpyDtoH_v2", CallKind::kSync},
      {"cuMemcpyDtoHAsync_v2", CallKind::kCopy},
      {"cudaMemsetAsync_v3020", CallKind::kSet},
      {"cudaStreamSynchronize_v3020", CallKind::kSync},
      {"cudaEventSynchronize_v3020", CallKind::kSync},
      {"cuCtxSynchronize", CallKind::kSync},
      {"cudaStreamWaitEvent_v3020", CallKind::kWaitEvent},
      {"cudaMalloc_v3020", CallKind::kMemory},
      {"cudaFree_v3020", CallKind::kMemory},
      {"cuMemAlloc_v2", CallKind::kMemory},
      {"cudaMemGetInfo_v3020", CallKind::kOther},
      {"cudaGetDevice_v3020", CallKind::kOther},
      {"cudaEventRecord_v3020", CallKind::kOther},
  };
  for (const auto& [name, kind] : cases) EXPECT_EQ(call_kind(name), kind) << name;
}

TEST(Names, ShortNamesAndCommunication) {
  EXPECT_EQ(short_name("void at::native::(anonymous namespace)::softmax<float, 4>(int*)"),
            "at::native::softmax");
  EXPECT_EQ(short_name("ncclDevKernel_AllReduce_Sum_f32(ncclDevKernelArgs)"),
            "ncclDevKernel_AllReduce_Sum_f32");
  EXPECT_EQ(short_name("sm90_xmma_gemm_bf16"), "sm90_xmma_gemm_bf16");
  EXPECT_EQ(short_name("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, 4>(x)"),
            "internal::gemvx::kernel");
  EXPECT_EQ(short_name("std::enable_if<odd"), "std::enable_if");
  EXPECT_EQ(short_name("<odd>"), "<odd>");
  EXPECT_TRUE(is_communication("ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)"));
  EXPECT_TRUE(is_communication("ncclKernel_AllReduce"));
  EXPECT_FALSE(is_communication("nccl_like_gemm"));
}

}  // namespace
}  // namespace harness::trace

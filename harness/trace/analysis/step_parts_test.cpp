#include "harness/trace/analysis/step_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/schema/error.h"
#include "harness/trace/testing.h"

namespace harness::trace {
namespace {

Ns time_of(const StepParts& parts, const std::string& name, const std::string& range) {
  for (const StepPart& part : parts.parts)
    if (part.name == name && part.range == range) return part.time;
  return -1;
}

Ns total(const StepParts& parts) {
  Ns all = 0;
  for (const StepPart& part : parts.parts) all += part.time;
  return all;
}

/// Work that overlaps, sums over ranks that other work hides, work from before the step and behind
/// it, and work that no range asked for.
TraceBuilder step_of_everything() {
  TraceBuilder t;
  t.range("train.step", 1, 1000, 2000).range("a", 1, 1010, 1200).range("b", 1, 1200, 1400);
  t.launch(1, 1020, 1).launch(1, 1210, 2).launch(1, 1220, 3).launch(1, 1230, 4);
  t.call("cudaDeviceSynchronize_v3020", 1, 1650, 1980, 5);
  t.kernel("before", 7, 900, 1050, 77);                                   // [1000, 1050)
  t.kernel("ka<1>", 7, 1100, 1300, 1).kernel("kb<1>", 8, 1250, 1350, 2);  // 200, 50
  t.kernel("ncclDevKernel_AllReduce", 9, 1320, 1420, 3);                  // 70 alone
  t.kernel("kb<2>", 7, 1900, 2100, 4);                                    // [1900, 2000)
  return t;
}

TEST(StepParts, EveryMomentBelongsToOnePart) {
  const StepParts parts = step_parts(step_of_everything().trace(), "train.step");
  EXPECT_EQ(parts.steps, 1);
  EXPECT_EQ(parts.wall, 1000);
  EXPECT_EQ(total(parts), 1000);
  EXPECT_EQ(time_of(parts, "before", "outside of all ranges"), 50);
  EXPECT_EQ(time_of(parts, "ka", "a"), 200);
  EXPECT_EQ(time_of(parts, "kb", "b"), 150) << "what overlaps belongs to what began first";
  EXPECT_EQ(time_of(parts, "ncclDevKernel_AllReduce", "b"), 70) << "as far as nothing hides it";
  EXPECT_EQ(time_of(parts, "idle: other pauses", "") +
                time_of(parts, "idle: the host had not asked for the next work yet", "") +
                time_of(parts, "idle: pauses under 2 us between kernels", ""),
            1000 - 50 - 200 - 150 - 70);
}

TEST(StepParts, StepsAreTheOutermostRangesOfTheMostTime) {
  TraceBuilder t = step_of_everything();
  t.range("settle", 1, 2100, 2200).range("longer, on another thread", 2, 0, 900);
  EXPECT_EQ(step_name(t.trace()), "train.step");
  EXPECT_THROW(step_name(Trace{}), Error);
  EXPECT_THROW(step_parts(t.trace(), "train.stop"), Error);
}

}  // namespace
}  // namespace harness::trace

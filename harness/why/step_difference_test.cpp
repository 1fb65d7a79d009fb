#include "harness/why/step_difference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/schema/error.h"

namespace harness {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

/// Two steps of 10 ms: a product, a kernel, pauses.
trace::StepParts profile(trace::Ns kernel_ns) {
  trace::StepParts x{.step = "train.step", .steps = 2, .wall = 0, .dropped = 0, .parts = {}};
  x.parts = {{"product", "a", 20, 8'000'000},
             {"kernel", "b", 4, kernel_ns},
             {"idle: other pauses", "", 0, 1'000'000}};
  for (const trace::StepPart& part : x.parts) x.wall += part.time;
  return x;
}

double total(const std::vector<PartChange>& changes) {
  double sum = 0;
  for (const PartChange& change : changes) sum += change.delta_ms();
  return sum;
}

TEST(StepDifference, PartsAddUpAndTheLargestChangeIsFirst) {
  trace::StepParts b = profile(9'000'000);
  b.parts.push_back({"new", "b", 2, 500'000});
  b.wall += 500'000;
  const StepDifference found = step_difference(profile(3'000'000), b);
  EXPECT_DOUBLE_EQ(found.a_ms, 6);
  EXPECT_DOUBLE_EQ(found.b_ms, 9.25);
  EXPECT_NEAR(total(found.parts), found.delta_ms(), 1e-12);
  EXPECT_NEAR(total(found.ranges), found.delta_ms(), 1e-12);
  EXPECT_EQ(found.parts[0].name, "kernel");
  EXPECT_DOUBLE_EQ(found.parts[0].delta_ms(), 3);
  EXPECT_DOUBLE_EQ(found.parts[0].a_count, 2);
  EXPECT_EQ(found.parts[1].name, "new");
  EXPECT_DOUBLE_EQ(found.parts[1].a_ms, 0) << "what one of them lacks";
  EXPECT_EQ(found.ranges[0].name, "b");
  EXPECT_DOUBLE_EQ(found.ranges[0].delta_ms(), 3.25);
  EXPECT_EQ(found.ranges.back().delta_ms(), 0);
}

TEST(StepDifference, ProfilesThatDoNotAddUpAreRefused) {
  trace::StepParts broken = profile(3);
  broken.dropped = 7;
  EXPECT_THAT([&] { step_difference(profile(3), broken); },
              ThrowsMessage<Error>(HasSubstr("the profile of B lost 7 records")));
  trace::StepParts empty = profile(3);
  empty.steps = 0;
  EXPECT_THAT([&] { step_difference(empty, profile(3)); },
              ThrowsMessage<Error>(HasSubstr("the profile of A has no step")));
  trace::StepParts other = profile(3);
  other.step = "attention";
  EXPECT_THAT([&] { step_difference(profile(3), other); },
              ThrowsMessage<Error>(HasSubstr("'train.step', one of B 'attention'")));
}

}  // namespace
}  // namespace harness

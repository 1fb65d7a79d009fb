#include "base/text/nearest.h"

#include <gtest/gtest.h>

namespace base {
namespace {

TEST(EditDistance, CountsSmallestNumberOfEdits) {
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);  // two substitutions, one insertion
  EXPECT_EQ(edit_distance("metric", "metrci"), 1u);   // neighbours swapped
  EXPECT_EQ(edit_distance("same", "same"), 0u);
}

TEST(NearestName, IsTheClosestThatCouldBeMeant) {
  const std::vector<std::string> known = {"metric", "severity", "evidence"};
  EXPECT_EQ(nearest_name("metrik", known), "metric");
  EXPECT_EQ(nearest_name("sevrity", known), "severity");
  EXPECT_EQ(nearest_name("xyz", known), "");
  EXPECT_EQ(nearest_name("zzzzzz", {"layers", "dim"}), "");
  EXPECT_EQ(nearest_name("metric", {}), "");
}

TEST(ClosestName, IsNamedHoweverFar) {
  EXPECT_EQ(closest_name("xyz", {"severity", "metric"}), "metric");
  EXPECT_EQ(closest_name("ca", {"aa", "ba"}), "aa");  // the first of equals
  EXPECT_EQ(closest_name("metric", {}), "");
}

TEST(NearestName, HugeNamesAreNotCompared) {
  EXPECT_EQ(nearest_name(std::string(1 << 20, 'a'), {"a"}), "");
}

}  // namespace
}  // namespace base

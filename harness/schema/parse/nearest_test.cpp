#include "harness/schema/parse/nearest.h"

#include <gtest/gtest.h>

namespace harness {
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
  EXPECT_EQ(nearest_name("metric", {}), "");
}

TEST(NearestName, HugeNamesAreNotCompared) {
  EXPECT_EQ(nearest_name(std::string(1 << 20, 'a'), {"a"}), "");
}

TEST(DidYouMean, ListsTheKnownNamesWhenNoneIsNear) {
  EXPECT_EQ(did_you_mean("qqq", {"alpha", "beta"}), "; known: alpha, beta");
  EXPECT_EQ(did_you_mean("alhpa", {"alpha", "beta"}), "; did you mean 'alpha'?");
}

TEST(InQuotes, ShowsHostileBytesAsNumbers) {
  EXPECT_EQ(in_quotes("a\x1b[31m\n\xff"), "'a\\x1b[31m\\x0a\\xff'");
  EXPECT_EQ(in_quotes(std::string(100, 'x')), "'" + std::string(80, 'x') + "...'");
}

}  // namespace
}  // namespace harness

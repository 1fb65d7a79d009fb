#include "harness/schema/parse/nearest.h"

#include <gtest/gtest.h>

namespace harness {
namespace {

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

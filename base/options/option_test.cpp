#include "base/options/option.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "base/options/whole_number.h"

namespace base {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Option, FlagHasDashesWhereTheKeyHasUnderscores) {
  EXPECT_EQ(flag_of({"seq_len", ""}), "--seq-len");
  EXPECT_EQ(flag_of({"rank_timeout_s", "", "rank_timeout"}), "--rank-timeout");
  EXPECT_EQ(flag_of({.name = "run_dir", .doc = "", .positional = true}), "run_dir");
}

TEST(Option, ChoicesAreTheWordsOfAList) {
  EXPECT_THAT(words_of("auto, on or off"), ElementsAre("auto", "on", "off"));
  EXPECT_THAT(words_of("strict or advisory"), ElementsAre("strict", "advisory"));
  EXPECT_THAT(words_of("one"), ElementsAre("one"));
  EXPECT_THAT(words_of(""), IsEmpty());
}

TEST(Option, CommandsAreWholeNames) {
  const OptionDoc some{.name = "x", .doc = "", .commands = "list|baseline promote"};
  EXPECT_TRUE(takes("list", some));
  EXPECT_TRUE(takes("baseline promote", some));
  EXPECT_FALSE(takes("promote", some));
  EXPECT_FALSE(takes("", some));
  EXPECT_TRUE(takes("", OptionDoc{.name = "x", .doc = ""}));
}

TEST(Option, BoundsRefuseWhatLiesOutsideAndNan) {
  const OptionDoc least{.name = "x", .doc = "", .least = 1},
      above{.name = "x", .doc = "", .above = 0},
      both{.name = "x", .doc = "", .least = 1, .most = 8};
  EXPECT_EQ(bounds_of(least), ">= 1");
  EXPECT_EQ(bounds_of(above), "> 0");
  EXPECT_EQ(bounds_of(both), "from 1 to 8");
  EXPECT_EQ(bounds_of({"x", ""}), "");
  EXPECT_TRUE(is_within(least, 1));
  EXPECT_FALSE(is_within(least, 0));
  EXPECT_FALSE(is_within(above, 0));
  EXPECT_TRUE(is_within(both, 8));
  EXPECT_FALSE(is_within(both, 9));
  EXPECT_FALSE(is_within(least, std::nan("")));
}

TEST(WholeNumber, IsDigitsThatFit) {
  EXPECT_EQ(read_whole_number("--n", "18446744073709551615", 7), UINT64_MAX);
  for (const char* odd : {"", "-1", "+1", " 1", "1x", "0x10", "18446744073709551616"})
    EXPECT_THROW(read_whole_number("--n", odd, 7), std::invalid_argument) << odd;
}

}  // namespace
}  // namespace base

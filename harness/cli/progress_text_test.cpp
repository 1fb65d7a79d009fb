#include "harness/cli/progress_text.h"

#include <gtest/gtest.h>

namespace harness::cli {
namespace {

TEST(ProgressText, BarsAndCuts) {
  EXPECT_EQ(bar(1, 2, 4), "[##..]");
  EXPECT_EQ(bar(9, 2, 4), "[####]") << "a worker may count on";
  EXPECT_EQ(bar(-9, 2, 4), "[....]");
  EXPECT_EQ(bar(3, 0, 4), "");
  EXPECT_EQ(fit("héllo", 5), "héllo");
  EXPECT_EQ(fit("héllo", 3), "hé…");
  EXPECT_EQ(fit("hello", 0), "hello");
}

TEST(ProgressText, ABeatIsWhatItKnows) {
  EXPECT_EQ(
      beat_text({.step = 3, .of = 40, .at = "forward", .rate = 1200, .rate_unit = "tok_s"}, 12),
      "step 3/40 forward, 1200 tok/s, 12 s left");
  EXPECT_EQ(beat_text({.step = 3, .of = 0, .at = "step"}, 0), "step 3");
  EXPECT_EQ(beat_text({.step = 3, .of = 4, .at = ""}, -1), "step 3/4") << "a time that is over";
}

TEST(ProgressText, WhatAWorkerWritesStaysText) {
  const std::string text =
      beat_text({.step = 1, .of = 2, .at = "\x1b[2J\n\r", .rate = 1, .rate_unit = "\x1b]0;x\a"}, 0);
  EXPECT_EQ(text.find_first_of("\x1b\n\r\a"), std::string::npos) << text;
}

}  // namespace
}  // namespace harness::cli

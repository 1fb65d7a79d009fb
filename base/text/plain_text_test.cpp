#include "base/text/plain_text.h"

#include <gtest/gtest.h>

namespace base {
namespace {

TEST(PlainText, KeepsTextWithoutControlCharacters) {
  const std::string text = "run 1: \u00e4\u4e2d \\ \xff";
  EXPECT_EQ(plain_text(text), text);
}

TEST(PlainText, ControlCharactersBecomeSpaces) {
  EXPECT_EQ(plain_text("a\x1b[31m\n\tb\x7f"), "a [31m  b ");
  EXPECT_EQ(plain_text(std::string("nul\0", 4)), "nul ");
}

TEST(PlainText, ControlCharactersOfTwoBytesBecomeSpaces) {
  EXPECT_EQ(plain_text("a\xc2\x9b"
                       "31m"),
            "a  31m");
  EXPECT_EQ(plain_text("\u00a0"), "\u00a0");  // the first that is none
  EXPECT_EQ(plain_text("cut \xc2"), "cut \xc2");
}

}  // namespace
}  // namespace base

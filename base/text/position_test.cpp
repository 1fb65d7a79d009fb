#include "base/text/position.h"

#include <gtest/gtest.h>

namespace base {
namespace {

void expect_position(std::string_view text, size_t offset, size_t line, size_t column) {
  const Position position = position_of(text, offset);
  EXPECT_EQ(position.line, line) << offset;
  EXPECT_EQ(position.column, column) << offset;
}

TEST(Position, CountsLinesAndColumnsFromOne) {
  const std::string_view text = "ab\n\ncd";
  expect_position(text, 0, 1, 1);
  expect_position(text, 2, 1, 3);  // the end of a line belongs to it
  expect_position(text, 3, 2, 1);
  expect_position(text, 5, 3, 2);
  expect_position("", 0, 1, 1);
}

TEST(Position, BehindTheTextIsItsEnd) { expect_position("a\nb", 100, 2, 2); }

}  // namespace
}  // namespace base

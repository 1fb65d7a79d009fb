#include "reports/markdown/table.h"

#include <gtest/gtest.h>

namespace reports {
namespace {

TEST(Table, PadsAndAligns) {
  Table table({"name", "n>"});
  table.add({"a", "1"});
  table.add({"größer", "1000"});
  EXPECT_EQ(table.markdown(),
            "| name   |    n |\n"
            "| ------ | ---: |\n"
            "| a      |    1 |\n"
            "| größer | 1000 |\n\n");
}

TEST(Table, WideColumnsAreNotPadded) {
  Table table({"a", "b"});
  table.add({std::string(60, 'x'), "1"});
  table.add({"y", "2"});
  EXPECT_EQ(table.markdown(),
            "| a | b   |\n| --- | --- |\n| " + std::string(60, 'x') + " | 1   |\n| y | 2   |\n\n");
}

TEST(Table, RowsHaveTheHeadersWidth) {
  Table table({"a", "b"});
  table.add({"1"});
  table.add({"1", "2", "3"});
  EXPECT_EQ(table.markdown(), "| a   | b   |\n| --- | --- |\n| 1   |     |\n| 1   | 2   |\n\n");
}

TEST(Table, NoRowsNoTable) {
  EXPECT_EQ(Table({"a"}).markdown(), "");
  EXPECT_TRUE(Table({"a"}).empty());
}

}  // namespace
}  // namespace reports

#include "harness/change_gate/test_edits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace harness {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// "WHAT: BEFORE -> AFTER" of every edit, behind its path.
std::vector<std::string> edits(const std::map<std::string, FileChange>& changes) {
  std::vector<std::string> lines;
  for (const auto& [path, found] : test_edits(changes))
    for (const ThresholdEdit& edit : found)
      lines.push_back(path + " " + edit.what + ": " + edit.before + " -> " + edit.after);
  return lines;
}

TEST(TestEdits, ATestThatIsGoneIsNamedAndOneThatMovedIsNot) {
  const std::string both = "TEST(A, One) {}\nTEST_F(B,\n       Two) {}\n";
  EXPECT_THAT(edits({{"x_test.cpp", {both, "TEST(A, One) {}\n"}}}),
              ElementsAre("x_test.cpp test B.Two: there -> gone"));
  EXPECT_THAT(
      edits({{"x_test.cpp", {both, std::nullopt}}}),
      ElementsAre("x_test.cpp test A.One: there -> gone", "x_test.cpp test B.Two: there -> gone"));
  EXPECT_THAT(edits({{"x_test.cpp", {both, "TEST(A, One) {}\n"}},
                     {"y_test.cpp", {std::nullopt, "TEST_F(B, Two) {}\n"}}}),
              IsEmpty());
  EXPECT_THAT(edits({{"x_test.cpp", {both, both + "TEST(C, New) { EXPECT_EQ(1, 1); }\n"}}}),
              IsEmpty());
}

TEST(TestEdits, CasesOfParametersAreTests) {
  EXPECT_THAT(edits({{"x_test.cpp", {"INSTANTIATE_TEST_SUITE_P(All, P, Range(9));", ""}}}),
              ElementsAre("x_test.cpp test All.P: there -> gone"));
}

TEST(TestEdits, MoreTestsThatDoNotRunAreAnEdit) {
  EXPECT_THAT(edits({{"x_test.cpp", {"TEST(A, B) {}", "TEST(A, B) { GTEST_SKIP(); }"}}}),
              ElementsAre("x_test.cpp tests that are skipped or disabled: 0 -> 1"));
  EXPECT_THAT(edits({{"x_test.cpp", {"TEST(A, B) {}", "TEST(A, DISABLED_B) {}"}}}),
              ElementsAre("x_test.cpp test A.B: there -> gone",
                          "x_test.cpp tests that are skipped or disabled: 0 -> 1"));
  EXPECT_THAT(edits({{"x_test.cpp", {"GTEST_SKIP()", ""}}}), IsEmpty());
}

TEST(TestEdits, CMakeMayTakeATestAwayOrKeepItFromRunning) {
  const std::string list = "nsa_add_test(NAME a_test SOURCES a_test.cpp b_test.cpp LIBS x)\n";
  EXPECT_THAT(edits({{"nsa/CMakeLists.txt",
                      {list, "nsa_add_test(NAME a_test SOURCES a_test.cpp LIBS x)\n"}}}),
              ElementsAre("nsa/CMakeLists.txt test b_test.cpp: there -> gone"));
  EXPECT_THAT(edits({{"nsa/CMakeLists.txt",
                      {list,
                       "nsa_add_test(NAME a_test SOURCES a_test.cpp b_test.cpp LIBS x "
                       "LABELS gpu)\n"}}}),
              ElementsAre("nsa/CMakeLists.txt tests that need a GPU: 0 -> 1"));
  EXPECT_THAT(edits({{"nsa/CMakeLists.txt", {list, ""}}, {"nsa/a/CMakeLists.txt", {"", list}}}),
              IsEmpty());
}

}  // namespace
}  // namespace harness

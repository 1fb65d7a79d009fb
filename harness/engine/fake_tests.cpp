/// A GoogleTest program with tests of every end. Only for tests of the engine.
#include <gtest/gtest.h>

#include <cstdlib>

TEST(Good, One) {}
TEST(Good, Two) {}
TEST(Bad, Fails) {
  RecordProperty("code", "ORACLE_MISMATCH");
  FAIL() << "|`<script>\x1b[31m";
}
TEST(Off, DISABLED_One) {}
/// Green tests of a program that ends badly.
struct BadEnd : testing::Environment {
  void SetUp() override {
    if (testing::GTEST_FLAG(filter) == "Good.One") std::atexit([] { std::_Exit(1); });
  }
};
// NOLINTNEXTLINE(bugprone-throwing-static-initialization): a test's program
const auto* const kBadEnd = testing::AddGlobalTestEnvironment(new BadEnd);

TEST(Crash, Here) { __builtin_trap(); }

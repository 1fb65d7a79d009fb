/// A GoogleTest program with tests of every end. Only for tests of the engine.
#include <gtest/gtest.h>

TEST(Good, One) {}
TEST(Good, Two) {}
TEST(Bad, Fails) {
  RecordProperty("code", "ORACLE_MISMATCH");
  FAIL() << "|`<script>\x1b[31m";
}
TEST(Off, DISABLED_One) {}
TEST(Crash, Here) { __builtin_trap(); }

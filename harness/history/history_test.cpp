#include "harness/history/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/schema/error.h"

namespace harness {
namespace {

using testing::HasSubstr;

Results run(int number, double value) {
  Results results;
  results.run.id = "run" + std::to_string(number);
  results.run.runbook = "mini";
  results.run.started = "2025-01-" + std::string(number < 10 ? "0" : "") + std::to_string(number);
  results.verdict.word = "GO";
  Metric metric;
  metric.name = "speed.v2.call_ms";
  metric.unit = "ms";
  metric.value = value;
  results.metrics = {metric};
  return results;
}

TEST(History, KeepsRunsAndTheirFiguresOnce) {
  const TempDir dir;
  {
    History history(dir / "h.sqlite");
    EXPECT_TRUE(history.add(run(2, 3), "b"));
    EXPECT_TRUE(history.add(run(1, 2), "a"));
    EXPECT_FALSE(history.add(run(1, 2), "a"));
  }
  const History again(dir / "h.sqlite");
  ASSERT_EQ(again.runs().size(), 2u);
  EXPECT_EQ(again.runs()[0].id, "run1");
  const auto trends = again.trends("speed.v2.call_ms");
  ASSERT_EQ(trends.size(), 1u);
  EXPECT_EQ(trends[0].points[1].value, 3);
  EXPECT_TRUE(again.trends("other").empty());
}

TEST(History, StepsAreFoundAndHardwareIsNotMixed) {
  const TempDir dir;
  History history(dir / "h.sqlite");
  for (int i = 1; i <= 12; ++i) history.add(run(i, i <= 6 ? 2 : 3), "h" + std::to_string(i));
  Results other = run(13, 99);
  other.environment = {{"machine", {{"cpu", {{"model", "Other"}}}}}};
  history.add(other, "o");
  const auto trends = history.trends("speed.v2.call_ms");
  ASSERT_EQ(trends.size(), 2u);
  ASSERT_EQ(trends[1].steps.size(), 1u);
  EXPECT_EQ(trends[1].steps[0].at, 6);
}

TEST(History, HostileNamesAreOnlyText) {
  const TempDir dir;
  History history(dir / "h.sqlite");
  Results hostile = run(1, 2);
  hostile.run.id = "'); DROP TABLE runs; --";
  hostile.metrics[0].name = "x' OR '1'='1";
  history.add(hostile, "a");
  EXPECT_EQ(history.runs()[0].id, "'); DROP TABLE runs; --");
  EXPECT_TRUE(history.trends("y' OR '1'='1").empty());
}

TEST(History, WithheldAndMissingFiguresAreNoPoints) {
  const TempDir dir;
  History history(dir / "h.sqlite");
  Results withheld = run(1, 2), none = run(2, 2);
  withheld.metrics[0].withheld = "outputs differ";
  none.metrics[0].value.reset();
  history.add(withheld, "a");
  history.add(none, "b");
  EXPECT_TRUE(history.trends("speed.v2.call_ms").empty());
}

TEST(History, AnEmptyFileIsANewOne) {
  const TempDir dir;
  write_bytes(dir / "h.sqlite", "");
  EXPECT_TRUE(History(dir / "h.sqlite").add(run(1, 2), "a"));
  EXPECT_EQ(History(dir / "h.sqlite").runs().size(), 1u);
}

TEST(History, ADamagedPageReportsWhatToDo) {
  const TempDir dir;
  History(dir / "h.sqlite").add(run(1, 2), "a");
  std::string bytes = read_bytes(dir / "h.sqlite");
  for (size_t i = 4096; i < bytes.size(); i += 7) bytes[i] ^= char(0x55);
  write_bytes(dir / "h.sqlite", bytes);
  const History damaged(dir / "h.sqlite");  // its first page is whole
  try {
    damaged.runs();
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("h.sqlite; remove it and import the runs again"));
  }
}

TEST(History, SomethingElseIsRefusedByName) {
  const TempDir dir;
  write_bytes(dir / "h.sqlite", std::string(4096, 'x'));
  try {
    History history(dir / "h.sqlite");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("h.sqlite"));
    EXPECT_THAT(e.what(), HasSubstr("import the runs again"));
  }
  EXPECT_THROW(History("/nonexistent/h.sqlite"), Error);
}

}  // namespace
}  // namespace harness

#include "harness/ingest/report_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/schema/error.h"

namespace harness {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

/// Repetitions of one benchmark around `time` ms, 1 % apart.
void add(json& report, const std::string& name, double time, int repetitions = 12) {
  for (int i = 0; i < repetitions; ++i)
    report["benchmarks"].push_back({{"name", name},
                                    {"run_name", name},
                                    {"run_type", "iteration"},
                                    {"repetition_index", i},
                                    {"iterations", 10},
                                    {"real_time", time * (1 + 0.01 * (i % 5 - 2))},
                                    {"cpu_time", time},
                                    {"time_unit", "ms"},
                                    {"bytes_per_second", 1e9}});
}

json report(const char* library = "release") {
  return {{"context", {{"library_build_type", library}}}, {"benchmarks", json::array()}};
}

TEST(ReportFile, MediansHaveIntervalsAndCounters) {
  json text = report();
  add(text, "copy/64", 4);
  const IngestedFile file = ingest_file(text.dump(), "b.json");
  EXPECT_EQ(file.problem, "");
  EXPECT_THAT(file.deviations, IsEmpty());
  const json row = file.tables.at(0)["rows"][0];
  EXPECT_EQ(row[0], "copy/64");
  EXPECT_EQ(row[1], "3.98 [3.92, 4.08] ms");
  EXPECT_EQ(row[2], 12);
  EXPECT_EQ(row[3], "bytes_per_second 1,000,000,000");
}

TEST(ReportFile, WhatMakesFiguresDoubtfulIsNamed) {
  json text = report("debug");
  text["context"]["cpu_scaling_enabled"] = true;
  add(text, "copy/64", 4, 3);
  EXPECT_THAT(ingest_file(text.dump(), "b.json").deviations,
              ElementsAre(HasSubstr("itself is a debug build"), HasSubstr("changes its clock"),
                          HasSubstr("1 of 1 benchmarks have too few repetitions")));
}

TEST(ReportFile, TestsPassOnlyWhereAllRan) {
  json test = {{"name", "A"}, {"status", "RUN"}, {"result", "COMPLETED"}};
  json suite = {{"name", "S"}, {"testsuite", {test}}};
  json text = {{"testsuites", {suite}}};
  EXPECT_EQ(ingest_file(text.dump(), "t.json").problem, "");
  text["testsuites"][0]["testsuite"][0]["failures"] = {{{"failure", "1 != 2"}}};
  EXPECT_EQ(ingest_file(text.dump(), "t.json").problem, "S.A: TEST_FAILED");
  text["testsuites"][0]["testsuite"][0]["status"] = "NOTRUN";
  EXPECT_EQ(ingest_file(text.dump(), "t.json").problem, "S.A: TEST_DISABLED");
}

TEST(ReportFile, WhatIsNoReportIsRefused) {
  const auto refused = [](const std::string& text) {
    return [text] { ingest_file(text, "x.json"); };
  };
  EXPECT_THAT(refused("{"), ThrowsMessage<Error>(HasSubstr("x.json is no JSON")));
  EXPECT_THAT(refused("{}"), ThrowsMessage<Error>(HasSubstr("neither Google Benchmark nor")));
  EXPECT_THAT(refused("[1]"), ThrowsMessage<Error>(HasSubstr("neither Google Benchmark nor")));
  EXPECT_THAT(refused(R"({"testsuites": []})"), ThrowsMessage<Error>(HasSubstr("has no test")));
  EXPECT_THAT(refused(report().dump()), ThrowsMessage<Error>(HasSubstr("has no benchmark")));
  json zero = report();
  add(zero, "b", 0);
  EXPECT_THAT(refused(zero.dump()), ThrowsMessage<Error>(HasSubstr("benchmark b: real_time is 0")));
  EXPECT_THAT(refused(R"({"benchmarks": [{"name": "b", "real_time": NaN, "time_unit": "ms"}]})"),
              ThrowsMessage<Error>(HasSubstr("benchmark b: real_time is NaN")));
}

/// The rows of a comparison by benchmark: ratio, and what is reported of it.
std::map<std::string, std::pair<json, json>> compared(const json& old_text, const json& new_text,
                                                      IngestedFile* whole = nullptr) {
  const IngestedFile found = compare_benchmark_files(read_benchmark_file(old_text, "old"),
                                                     read_benchmark_file(new_text, "new"));
  if (whole != nullptr) *whole = found;
  std::map<std::string, std::pair<json, json>> rows;
  for (const json& row : found.tables.at(0)["rows"]) rows[row[0]] = {row[3], row[4]};
  return rows;
}

TEST(ReportFile, TwoFilesAreComparedWithIntervals) {
  json before = report(), after = report();
  add(before, "same", 4), add(after, "same", 4.02);
  add(before, "slower", 4), add(after, "slower", 4.4);
  add(before, "faster", 4), add(after, "faster", 2);
  add(before, "few", 4, 3), add(after, "few", 8, 3);
  add(before, "lost", 4), add(after, "new", 4);
  IngestedFile whole;
  const auto rows = compared(before, after, &whole);
  EXPECT_EQ(rows.at("same").second, "not told apart");
  EXPECT_EQ(rows.at("slower").second, "slower");
  EXPECT_EQ(rows.at("slower").first, "1.1 [1.057, 1.145]");
  EXPECT_EQ(rows.at("faster").second, "faster");
  EXPECT_EQ(rows.at("few").second, "no interval");
  EXPECT_EQ(rows.at("lost").second, "lost");
  EXPECT_EQ(rows.at("new").second, "new");
  EXPECT_EQ(whole.problem, "lost: lost");
  EXPECT_EQ(whole.deviations.size(), 2U);
}

TEST(ReportFile, OtherUnitsAndFailuresHaveNoRatio) {
  json before = report(), after = report();
  add(before, "unit", 4), add(after, "unit", 4);
  for (json& entry : after["benchmarks"]) entry["time_unit"] = "s";
  after["benchmarks"].push_back({{"name", "bad"},
                                 {"run_name", "bad"},
                                 {"error_occurred", true},
                                 {"error_message", "outputs differ"}});
  add(before, "bad", 4);
  const auto rows = compared(before, after);
  EXPECT_EQ(rows.at("unit").second, "other unit");
  EXPECT_EQ(rows.at("bad").second, "skipped or failed");
  EXPECT_EQ(rows.at("bad").first, nullptr);
}

}  // namespace
}  // namespace harness

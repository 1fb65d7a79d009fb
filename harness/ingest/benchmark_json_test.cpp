#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "harness/ingest/testing.h"

namespace harness {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string report(const std::string& time) {
  return R"({"context": {"library_build_type": "release"}, "benchmarks": [
    {"name": "v1/256", "run_name": "v1/256", "run_type": "iteration", "repetition_index": 0, "iterations": 10,
     "real_time": )" +
         time + R"(, "cpu_time": 1.0, "time_unit": "ms"},
    {"name": "v2/256", "run_name": "v2/256", "run_type": "iteration", "repetition_index": 1, "iterations": 10,
     "real_time": 1500, "cpu_time": 1.0, "time_unit": "ns"},
    {"name": "v2/256_mean", "run_name": "v2/256", "run_type": "aggregate", "real_time": 1, "time_unit": "ns"}]})";
}

TEST(BenchmarkJson, OneSampleARepetition) {
  const auto got = ingest_with(ingest_benchmark, report("2.5e+00"), {"v1/256", "v2/256"});
  EXPECT_EQ(got.verdict.cause, "") << got.verdict.reason;
  EXPECT_THAT(got.transcript.violations, IsEmpty());
  std::vector<std::string> samples;
  for (const auto& line : got.transcript.lines)
    if (const auto* sample = std::get_if<base::protocol::Sample>(&line.message))
      samples.push_back(sample->series + " " + std::to_string(*sample->value) + " " + sample->unit);
  EXPECT_THAT(samples, ElementsAre("v1/256 2.500000 ms", "v2/256 1.500000 us"));
  EXPECT_EQ(got.transcript.ended.at("c").status, "ok");
}

TEST(BenchmarkJson, HowTheLibraryWasBuiltIsRecorded) {
  const auto recorded = [](const std::string& context) {
    const auto got =
        ingest_with(ingest_benchmark,
                    R"({"context": )" + context + R"(, "benchmarks": [{"name": "b", "iterations": 1,
                        "real_time": 1, "cpu_time": 1, "time_unit": "ms"}]})",
                    {"b"});
    return std::get<base::protocol::Hello>(got.transcript.lines.at(0).message)
        .versions.at("Google Benchmark");
  };
  EXPECT_EQ(recorded(R"({"library_build_type": "debug"})"), "debug build");
  EXPECT_EQ(recorded(R"({"library_build_type": "release"})"), "release build");
  EXPECT_EQ(recorded("{}"), "build type not stated");
}

TEST(BenchmarkJson, NonFiniteTimesAreNamed) {
  for (const std::string time : {"NaN", "Infinity", "-nan"}) {
    const auto got = ingest_with(ingest_benchmark, report(time), {"v1/256", "v2/256"});
    EXPECT_EQ(got.verdict.cause, "NON_FINITE") << time;
    EXPECT_THAT(got.transcript.lines, IsEmpty());
  }
}

TEST(BenchmarkJson, WhatRanMustBeWhatWasPlanned) {
  EXPECT_EQ(ingest_with(ingest_benchmark, report("1"), {"v1/256"}).verdict.cause, "BAD_TEST_COUNT");
  EXPECT_EQ(ingest_with(ingest_benchmark, report("1"), {}).verdict.cause, "NO_TESTS");
  EXPECT_EQ(ingest_with(ingest_benchmark, "{", {"v1/256"}).verdict.cause, "BAD_TEST_JSON");
}

TEST(BenchmarkJson, AnErrorFailsTheCase) {
  const auto got = ingest_with(
      ingest_benchmark,
      R"({"benchmarks": [{"name": "b", "run_name": "b", "run_type": "iteration", "error_occurred": true,
          "error_message": "outputs differ", "real_time": 0, "time_unit": "ns"}]})",
      {"b"});
  EXPECT_EQ(got.transcript.ended.at("c").reason, "b: outputs differ");
}

/// A report of b with these fields besides its names, and a good benchmark a before it.
std::string with_b(const std::string& fields) {
  return R"({"benchmarks": [{"name": "a", "run_name": "a", "run_type": "iteration",
      "iterations": 100, "real_time": 10.0, "cpu_time": 10.0, "time_unit": "ns"},
      {"name": "b", "run_name": "b", "run_type": "iteration", "time_unit": "ns", )" +
         fields + "}]}";
}

std::vector<std::string> failed_checks(const Ingested& got) {
  std::vector<std::string> failed;
  for (const auto& line : got.transcript.lines)
    if (const auto* check = std::get_if<base::protocol::Check>(&line.message); check && !check->ok)
      failed.push_back(check->id + " " + check->code + " " + check->detail);
  return failed;
}

int64_t samples_of_b(const Ingested& got) {
  int64_t n = 0;
  for (const auto& line : got.transcript.lines)
    if (const auto* sample = std::get_if<base::protocol::Sample>(&line.message))
      n += sample->series == "b";
  return n;
}

TEST(BenchmarkJson, ASkippedBenchmarkHasNotPassed) {
  for (const auto& [fields, message] :
       {std::pair(R"("iterations": 0, "real_time": 0.0, "cpu_time": 0.0, "skipped": true,
                     "skip_message": "no GPU")",
                  "skipped: no GPU"),
        std::pair(R"("skipped": true, "skip_message": "no GPU")", "skipped: no GPU"),
        std::pair(R"("skipped": true, "skip_message": "s", "error_occurred": true,
                     "error_message": "e")",
                  "skipped: s"),
        std::pair(R"("iterations": 5, "real_time": 7.0, "cpu_time": 7.0, "skipped": true)",
                  "skipped: no message is given")}) {
    const auto got = ingest_with(ingest_benchmark, with_b(fields), {"a", "b"});
    EXPECT_EQ(got.verdict.cause, "") << got.verdict.reason;
    EXPECT_THAT(failed_checks(got), ElementsAre("b TEST_SKIPPED " + std::string(message)));
    EXPECT_EQ(got.transcript.ended.at("c").reason, "b: " + std::string(message));
    EXPECT_EQ(samples_of_b(got), 0);
  }
}

TEST(BenchmarkJson, ASkippedRepetitionFailsItsBenchmark) {
  const auto got =
      ingest_with(ingest_benchmark, with_b(R"("iterations": 5, "real_time": 7.0, "cpu_time": 7.0},
      {"name": "b", "run_name": "b", "run_type": "iteration", "repetition_index": 1,
       "iterations": 0, "real_time": 0, "cpu_time": 0, "time_unit": "ns", "skipped": true)"),
                  {"a", "b"});
  EXPECT_EQ(got.transcript.ended.at("c").status, "failed");
}

TEST(BenchmarkJson, AnEntryThatMeasuredNothingIsRefusedByNameAndField) {
  const std::map<std::string, std::string> good = {
      {"real_time", "7.5"}, {"cpu_time", "7.5"}, {"iterations", "100"}};
  for (const char* field : {"real_time", "cpu_time", "iterations"})
    for (const char* value : {"0", "0.0", "-1", "null", "\"7\"", "true", "NaN", "-Infinity", ""}) {
      auto fields = good;
      fields[field] = value;
      std::string text;
      for (const auto& [name, number] : fields)
        if (!number.empty()) text += (text.empty() ? "\"" : ", \"") + name + "\": " + number;
      const auto got = ingest_with(ingest_benchmark, with_b(text), {"a", "b"});
      const std::string bad = std::string(value).empty() ? "missing" : value;
      EXPECT_THAT(got.verdict.reason,
                  HasSubstr("benchmark b: " + std::string(field) + " is " + bad + ", want"));
      EXPECT_EQ(got.verdict.cause,
                bad == "NaN" || bad == "-Infinity" ? "NON_FINITE" : "BAD_TEST_JSON");
      EXPECT_THAT(got.transcript.lines, IsEmpty());
    }
}

TEST(BenchmarkJson, ANonFiniteCounterIsRefusedToo) {
  const auto got = ingest_with(
      ingest_benchmark,
      with_b(R"("iterations": 5, "real_time": 7.0, "cpu_time": 7.0, "bytes_per_second": NaN)"),
      {"a", "b"});
  EXPECT_EQ(got.verdict.cause, "NON_FINITE");
}

TEST(BenchmarkJson, AggregatesOfAnyMeaningAreLeftOut) {
  const auto got =
      ingest_with(ingest_benchmark, with_b(R"("iterations": 5, "real_time": 7.0, "cpu_time": 7.0},
      {"name": "b_cv", "run_name": "b", "run_type": "aggregate", "aggregate_name": "cv",
       "aggregate_unit": "percentage", "iterations": 1, "real_time": 0.0, "cpu_time": -1.0,
       "time_unit": "ns"},
      {"name": "b_BigO", "run_name": "b", "run_type": "aggregate", "cpu_coefficient": -1.0,
       "real_coefficient": 0, "big_o": "N", "time_unit": "ns"},
      {"name": "b_RMS", "run_name": "b", "run_type": "aggregate", "rms": 0.0)"),
                  {"a", "b"});
  EXPECT_EQ(got.verdict.cause, "") << got.verdict.reason;
  EXPECT_EQ(got.transcript.ended.at("c").status, "ok");
  EXPECT_EQ(samples_of_b(got), 1);
}

TEST(BenchmarkList, OneNameALine) {
  EXPECT_THAT(parse_benchmark_list("a/1\nb/2\n"), ElementsAre("a/1", "b/2"));
}

}  // namespace
}  // namespace harness

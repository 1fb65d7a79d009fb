#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/ingest/testing.h"

namespace harness {
namespace {

using testing::ElementsAre;
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
    if (const auto* sample = std::get_if<protocol::Sample>(&line.message))
      samples.push_back(sample->series + " " + std::to_string(*sample->value) + " " + sample->unit);
  EXPECT_THAT(samples, ElementsAre("v1/256 2.500000 ms", "v2/256 1.500000 us"));
  EXPECT_EQ(got.transcript.ended.at("c").status, "ok");
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

TEST(BenchmarkList, OneNameALine) {
  EXPECT_THAT(parse_benchmark_list("a/1\nb/2\n"), ElementsAre("a/1", "b/2"));
}

}  // namespace
}  // namespace harness

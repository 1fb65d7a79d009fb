#include "suites/bench/bench_report.h"

#include <gtest/gtest.h>

namespace suites {
namespace {

using nlohmann::json;

json run_of(double lo, double median, double hi, const char* id = "paper_8k") {
  const json time = {{"n", 20}, {"median_ms", median}, {"lo_ms", lo}, {"hi_ms", hi}};
  return {{"schema", "nsa-bench/2"},
          {"device", "NVIDIA H200"},
          {"cases", {{{"id", id}, {"problems", json::array()}, {"forward", {{"hot", time}}}}}}};
}

TEST(BenchReport, FasterOnlyWhenTheIntervalsAllowNothingElse) {
  EXPECT_NE(compare_text(run_of(9, 10, 11), run_of(4, 5, 6)).find("x0.500 [0.364, 0.667] faster"),
            std::string::npos);
  EXPECT_NE(compare_text(run_of(9, 10, 11), run_of(10, 11, 12)).find("undecided"),
            std::string::npos);
  EXPECT_NE(compare_text(run_of(9, 10, 11), run_of(12, 13, 14)).find("slower"), std::string::npos);
}

TEST(BenchReport, TooFewSamplesDecideNothing) {
  json few = run_of(1, 2, 3);
  few["cases"][0]["forward"]["hot"]["lo_ms"] = nullptr;
  EXPECT_NE(compare_text(run_of(9, 10, 11), few).find("no interval"), std::string::npos);
}

TEST(BenchReport, OtherFilesAndNothingInCommonAreErrors) {
  EXPECT_THROW(compare_text(json::object(), run_of(1, 2, 3)), std::invalid_argument);
  EXPECT_THROW(compare_text(run_of(1, 2, 3), run_of(1, 2, 3, "other")), std::invalid_argument);
}

TEST(BenchReport, CallsAloneAndCallsInARowAreNotCompared) {
  json alone = run_of(9, 10, 11);
  alone["schema"] = "nsa-bench/1";
  EXPECT_THROW(compare_text(alone, run_of(1, 2, 3)), std::invalid_argument);
  EXPECT_NE(compare_text(alone, alone).find("undecided"), std::string::npos);
  alone["schema"] = "nsa-bench/3";
  EXPECT_THROW(compare_text(alone, alone), std::invalid_argument);
}

TEST(BenchReport, AFileDoesNotSteerTheTerminal) {
  const std::string hostile = "a\x1b[31m\r\n\x7f";
  json before = run_of(9, 10, 11, hostile.c_str()), after = run_of(4, 5, 6, hostile.c_str());
  before["device"] = hostile;
  after["cases"][0]["problems"].push_back(hostile);
  before["cases"][0]["ran"] = {{hostile, "fused"}};
  after["cases"][0]["ran"] = {{hostile, hostile}};
  for (const std::string& text : {compare_text(before, after), target_bench_text(after)}) {
    EXPECT_EQ(text.find_first_of("\x1b\r\x7f"), std::string::npos);
    EXPECT_NE(text.find("a [31m"), std::string::npos);
  }
}

TEST(BenchReport, ProblemsStandInTheText) {
  json run = run_of(1, 2, 3);
  run["cases"][0]["problems"].push_back("rows differ");
  EXPECT_NE(target_bench_text(run).find("PROBLEM rows differ"), std::string::npos);
}

TEST(BenchReport, LaunchesAndTheCertificateOfTheSelectionStandInTheText) {
  json run = run_of(1, 2, 3);
  EXPECT_EQ(target_bench_text(run).find("launches"), std::string::npos);
  json& row = run["cases"][0];
  row["launches"] = {{"forward", 4}, {"backward", 6}};
  row["host_us"] = {{"forward", 80.4}, {"backward", 99.6}};
  row["selection"] = {{"rows", 192}, {"exchanged_rows", 3}, {"largest_score_difference", 2e-7}};
  const std::string text = target_bench_text(run);
  EXPECT_NE(text.find("launches 4 + 6, host 80 + 100 us"), std::string::npos);
  EXPECT_NE(text.find("192 rows judged in fp64, 3 with blocks exchanged"), std::string::npos);
  EXPECT_NE(text.find("largest score difference 2e-07"), std::string::npos);
}

TEST(BenchReport, AnotherCodeIsNamedBesideItsTimes) {
  json before = run_of(9, 10, 11), after = run_of(4, 5, 6);
  after["cases"][0]["ran"] = {{"sel_attn", "fused (by rows)"}, {"win_attn", "fused (sm_80)"}};
  EXPECT_EQ(compare_text(before, after).find(" ran "), std::string::npos)
      << "an older report does not say";
  before["cases"][0]["ran"] = {{"sel_attn", "fused (by rows)"}, {"win_attn", "fused"}};
  const std::string text = compare_text(before, after);
  EXPECT_NE(text.find("paper_8k  win_attn ran fused -> fused (sm_80)\n"), std::string::npos)
      << text;
  EXPECT_EQ(text.find("sel_attn ran"), std::string::npos) << text;
}

TEST(BenchReport, StepsOfDecodeAreAPassLikeAnother) {
  const auto steps = [](json run, double rate) {
    json& row = run["cases"][0];
    row["step"] = row["forward"];
    row["step"]["gb_s"] = rate;
    row.erase("forward");
    return run;
  };
  const json before = steps(run_of(9, 10, 11), 900), after = steps(run_of(4, 5, 6), 1800);
  EXPECT_NE(compare_text(before, after).find("faster"), std::string::npos);
  EXPECT_NE(target_bench_text(after).find("1800 GB/s"), std::string::npos);
}

}  // namespace
}  // namespace suites

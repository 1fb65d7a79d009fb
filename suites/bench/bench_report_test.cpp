#include "suites/bench/bench_report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <string>
#include <utility>

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

TEST(BenchReport, ControlCharactersOfAFileAreNotPrinted) {
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

TEST(BenchReport, TextHasProblems) {
  json run = run_of(1, 2, 3);
  run["cases"][0]["problems"].push_back("rows differ");
  EXPECT_NE(target_bench_text(run).find("PROBLEM rows differ"), std::string::npos);
}

TEST(BenchReport, TextHasLaunchesAndTheCertificateOfTheSelection) {
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
      << "an older report has no field `ran`";
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

/// A report of right cases with these ids, each of 10 ms forward.
json report_of(std::initializer_list<const char*> ids) {
  json report = run_of(9.9, 10, 10.1);
  const json row = report["cases"][0];
  report["cases"] = json::array();
  for (const char* id : ids) {
    report["cases"].push_back(row);
    report["cases"].back()["id"] = id;
  }
  return report;
}

json& case_of(json& report, size_t at) { return report["cases"][at]; }

struct Compared {
  std::string text, why;  ///< why: of NotComparable
  int64_t faults = 0;

  bool has(const std::string& part) const { return text.find(part) != std::string::npos; }
};

Compared compared(const json& before, const json& after) {
  Compared result;
  try {
    result.text = compare_text(before, after, &result.faults);
  } catch (const NotComparable& error) {
    result = {error.rows, error.what(), error.faults};
  }
  return result;
}

TEST(BenchCompare, RightCasesOfBothRunsHaveNoFault) {
  const Compared same = compared(report_of({"a", "b"}), report_of({"b", "a"}));
  EXPECT_EQ(same.faults, 0);
  EXPECT_EQ(same.why, "");
  EXPECT_TRUE(same.has("x1.000 [0.980, 1.020] undecided")) << same.text;
}

TEST(BenchCompare, AWrongCaseAndALostOneHaveRowsAndNoRatio) {
  json after = report_of({"a", "b"});
  case_of(after, 1)["problems"] = {"o_sel: 37 rows differ"};
  for (const bool timed : {true, false}) {
    if (!timed) case_of(after, 1).erase("forward");
    const Compared result = compared(report_of({"a", "b", "c"}), after);
    EXPECT_EQ(result.why, "");
    EXPECT_EQ(result.faults, 2);
    EXPECT_TRUE(result.has("a              forward ")) << result.text;
    EXPECT_TRUE(result.has("b              WRONG     in NEW: o_sel: 37 rows differ\n"));
    EXPECT_TRUE(result.has("c              LOST "));
    EXPECT_FALSE(result.has("b              forward "));
    EXPECT_FALSE(result.has("c              forward "));
  }
}

TEST(BenchCompare, ANewCaseIsARowAndNoFaultUnlessItIsWrong) {
  json after = report_of({"a", "d"});
  EXPECT_EQ(compared(report_of({"a"}), after).faults, 0);
  EXPECT_TRUE(compared(report_of({"a"}), after).has("d              NEW "));
  case_of(after, 1)["problems"] = {"no check ran"};
  EXPECT_EQ(compared(report_of({"a"}), after).faults, 1);
  EXPECT_TRUE(compared(report_of({"a"}), after).has("d              WRONG "));
}

TEST(BenchCompare, ACaseThatWasWrongHasNoRatioAndIsNoFaultOfTheNewRun) {
  json before = report_of({"a", "b"});
  case_of(before, 1)["problems"] = {"rows differ"};
  const Compared result = compared(before, report_of({"a", "b"}));
  EXPECT_EQ(result.faults, 0);
  EXPECT_TRUE(result.has("b              WRONG     in OLD: rows differ"));
  EXPECT_FALSE(result.has("b              forward "));
}

TEST(BenchCompare, ADuplicateCaseIsAFaultInEitherFile) {
  const json twice = report_of({"a", "b", "b"}), once = report_of({"a", "b"});
  for (const auto& [before, after] : {std::pair(twice, once), std::pair(once, twice)}) {
    const Compared result = compared(before, after);
    EXPECT_EQ(result.faults, 1);
    EXPECT_TRUE(result.has("b              DUPLICATE ")) << result.text;
    EXPECT_FALSE(result.has("b              forward "));
    EXPECT_TRUE(result.has("a              forward "));
  }
  EXPECT_EQ(compared(twice, twice).faults, 1);
  EXPECT_EQ(compared(twice, report_of({"a"})).faults, 1) << "lost and duplicate: one case";
}

TEST(BenchCompare, NothingInCommonHidesNoRow) {
  const Compared lost = compared(report_of({"a"}), report_of({"d"}));
  EXPECT_NE(lost.why.find("no timed case in common"), std::string::npos);
  EXPECT_TRUE(lost.has("a              LOST ") && lost.has("d              NEW "));
  EXPECT_EQ(lost.faults, 1);
  json wrong = report_of({"a"});
  case_of(wrong, 0)["problems"] = {"rows differ"};
  EXPECT_TRUE(compared(report_of({"a"}), wrong).has("WRONG"));
  EXPECT_EQ(compared(report_of({"a"}), wrong).faults, 1);
  EXPECT_NE(compared(wrong, report_of({"a"})).why, "") << "no ratio at all is no success";
  EXPECT_EQ(compared(report_of({"a"}), report_of({})).faults, 1);
  EXPECT_NE(compared(report_of({}), report_of({"a"})).why, "");
}

TEST(BenchCompare, TimesThatAreNoneAreErrorsNamingCaseAndField) {
  for (const char* field : {"median_ms", "lo_ms", "hi_ms"})
    for (const json& value : {json(0), json(0.0), json(-1.5), json(std::nan("")), json(INFINITY),
                              json("10"), json("NaN"), json(true), json::array()}) {
      json bad = report_of({"a", "b", "c"});
      case_of(bad, 1)["forward"]["hot"][field] = value;
      const std::string named = "forward.hot." + std::string(field) + " is ";
      const Compared newer = compared(report_of({"a", "b", "c", "e"}), bad);
      EXPECT_NE(newer.why.find("case b of NEW: " + named), std::string::npos) << newer.why;
      EXPECT_TRUE(newer.has("a              forward ") && newer.has("c              forward "));
      EXPECT_TRUE(newer.has("e              LOST "));
      EXPECT_FALSE(newer.has("b              forward "));
      const Compared older = compared(bad, report_of({"a", "b", "c"}));
      EXPECT_NE(older.why.find("case b of OLD: " + named), std::string::npos) << older.why;
    }
}

TEST(BenchCompare, TimesThatAreMissingAreErrorsNamingCaseAndField) {
  const auto why_without = [](const char* pointer) {
    json bad = report_of({"a", "b"});
    const json::json_pointer at(pointer);
    case_of(bad, 1)[at.parent_pointer()].erase(at.back());
    return compared(report_of({"a", "b"}), bad).why;
  };
  const auto names = [](const std::string& why, const char* part) {
    return why.find(part) != std::string::npos;
  };
  EXPECT_TRUE(names(why_without("/forward"), "case b of NEW: forward.hot is missing"));
  EXPECT_TRUE(names(why_without("/forward/hot"), "case b of NEW: forward.hot is missing"));
  for (const char* field : {"median_ms", "lo_ms", "hi_ms"})
    EXPECT_TRUE(
        names(why_without((std::string("/forward/hot/") + field).c_str()),
              ("case b of NEW: forward.hot." + std::string(field) + " is missing").c_str()));
  EXPECT_TRUE(names(why_without("/problems"), "case b of NEW: problems is missing or no list"));
  json null = report_of({"a"});
  case_of(null, 0)["forward"]["hot"]["median_ms"] = nullptr;
  EXPECT_TRUE(names(compared(report_of({"a"}), null).why, "forward.hot.median_ms is null"));
  json untimed = report_of({"a", "b"});
  case_of(untimed, 1).erase("forward");
  EXPECT_TRUE(names(compared(untimed, untimed).why, "case b of OLD and NEW: forward"));
}

}  // namespace
}  // namespace suites

#include "nsa/train/record/result_lines.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "nsa/program/input_error.h"

namespace nsa::train {
namespace {

TEST(ResultLines, EveryLineIsJsonWithItsFields) {
  const std::string path = ::testing::TempDir() + "nsa_result_lines_" + std::to_string(getpid());
  {
    ResultLines lines(path);
    lines.hello("b", "cpu", {}, {{"torch", "2"}}, {});
    lines.mark("c", 1, 2, "forward");
    StepRecord nan_step;
    nan_step.loss = std::numeric_limits<double>::quiet_NaN();
    lines.beat("c", nan_step, 2);
    lines.sample("c", "step_time", 1.5, "ms", 1);
    lines.metric("c", {"loss.min_nat", "nat", 1.25, ""});
    lines.metric("c", {"data.real_bool", "bool", 1, ""});
    lines.metric("c", {"x.y_nat", "nat", std::numeric_limits<double>::infinity(), ""});
    lines.check("c", {"lr_trace", "LR_TRACE", "d", true, 0, 1e-9});
    lines.finding({"NON_FINITE", "bad \xff|`<script>\n\x1b[0m", "f", "c", "a"});
    lines.case_end("c", "");
    lines.done();
    EXPECT_THROW(lines.sample("c", "s", std::nan(""), "ms", 1), std::runtime_error);
  }
  std::ifstream in(path);
  std::vector<nlohmann::json> have;
  for (std::string line; std::getline(in, line);) have.push_back(nlohmann::json::parse(line));
  unlink(path.c_str());
  ASSERT_EQ(have.size(), 11u);
  const std::vector<std::string> types = {"hello",   "beat",   "beat",   "sample",
                                          "metric",  "metric", "metric", "check",
                                          "finding", "case",   "done"};
  for (size_t i = 0; i < have.size(); ++i) {
    EXPECT_EQ(have[i]["type"], types[i]);
    EXPECT_TRUE(have[i]["t"].is_number());
  }
  EXPECT_EQ(have[0]["v"], 1);
  EXPECT_EQ(have[1]["at"], "forward");
  EXPECT_TRUE(have[2]["extra"]["loss"].is_null());
  EXPECT_EQ(have[5]["value"], true);
  EXPECT_TRUE(have[6]["value"].is_null());
  EXPECT_EQ(have[6]["reason"], "the figure is not finite");
  EXPECT_EQ(have[9]["status"], "ok");
  EXPECT_EQ(have[10]["lines"], 10);
}

TEST(ResultLines, FullDiskAndClosedDescriptorAreErrors) {
  ResultLines full("/dev/full");
  EXPECT_THROW(full.done(), std::runtime_error);
  EXPECT_THROW(ResultLines("/no/such/folder/x"), InputError);
  const int kept = dup(3);
  close(3);
  EXPECT_THROW(ResultLines(""), InputError);
  if (kept >= 0) dup2(kept, 3), close(kept);
}

}  // namespace
}  // namespace nsa::train

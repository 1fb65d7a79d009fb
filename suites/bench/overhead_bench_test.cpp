#include "suites/bench/overhead_bench.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace suites {
namespace {

TEST(OverheadBench, TimesBothArmsOfCallsThatAgree) {
  const nlohmann::json report = run_overhead_bench(at::kCPU, {}, /*rounds=*/3);
  ASSERT_EQ(report.at("cases").size(), 2u);
  for (const nlohmann::json& row : report.at("cases")) {
    EXPECT_TRUE(row.at("problems").empty()) << row.dump(1);
    EXPECT_EQ(row.at("checks_run"), 1);
    for (const char* arm : {"operator_us", "direct_us", "more_us"})
      EXPECT_EQ(row.at(arm).at("n"), 3) << arm;
    EXPECT_GT(row.at("direct_us").at("median"), 0);
  }
}

TEST(OverheadBench, RefusesAFilterThatLeavesNoCase) {
  EXPECT_THROW(run_overhead_bench(at::kCPU, {.filter = "none"}, 1), std::invalid_argument);
}

}  // namespace
}  // namespace suites

#include "suites/bench/targets/case_row.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

namespace suites {
namespace {

using nlohmann::json;

json row_of(const std::function<void(json&)>& run) {
  return run_case("paper_8k", CaseConfig{}, at::kCPU, run);
}

TEST(RunCase, GivesTheRowThatRunFilledIn) {
  const json row = row_of([](json& found) { found["calls"] = 3; });
  EXPECT_EQ(row.at("id"), "paper_8k");
  EXPECT_EQ(row.at("calls"), 3);
  EXPECT_TRUE(row.at("problems").empty());
}

TEST(RunCase, AnErrorIsAProblemOfThatCaseAlone) {
  EXPECT_EQ(row_of([](json&) { TORCH_CHECK(false, "CUDA out of memory"); }).at("problems"),
            json::array({"CUDA out of memory"}));
  EXPECT_EQ(row_of([](json&) { throw std::invalid_argument("a call took 0 ms"); }).at("problems"),
            json::array({"a call took 0 ms"}));
  EXPECT_EQ(row_of([](json&) { throw std::bad_alloc(); }).at("problems").size(), 1u);
}

TEST(RunCase, KeepsFieldsSetBeforeAnError) {
  const json row = row_of([](json& found) {
    found["checks_run"] = 7;
    throw std::runtime_error("lost the device");
  });
  EXPECT_EQ(row.at("checks_run"), 7);
  EXPECT_EQ(row.at("problems"), json::array({"lost the device"}));
}

}  // namespace
}  // namespace suites

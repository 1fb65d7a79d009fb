#include "suites/bench/coverage/coverage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/testing/paths.h"
#include "suites/bench/coverage/boxes.h"
#include "suites/bench/coverage/kernel_coverage.h"
#include "suites/bench/coverage/recorded_times.h"

namespace suites {
namespace {

using testing::HasSubstr;

constexpr const char* kBegin = "<!-- begin: nsa-bench coverage --markdown -->\n";
constexpr const char* kEnd = "<!-- end -->\n";

std::string text_between_markers(const std::string& page) {
  const size_t begin = page.find(kBegin), end = page.find(kEnd);
  if (begin == std::string::npos || end == std::string::npos) return "no markers";
  const size_t first = begin + std::string(kBegin).size();
  return page.substr(first, end - first);
}

TEST(Coverage, PageHasWhatTheCommandPrints) {
  const std::string path = base::source_dir() + "/docs/coverage.md";
  std::ostringstream page;
  page << std::ifstream(path).rdbuf();
  EXPECT_EQ(text_between_markers(page.str()),
            coverage_text(base::source_dir() + "/reports/samples/bench", /*markdown=*/true))
      << "write the output of `nsa-bench coverage --markdown` into " << path;
}

TEST(Coverage, ReasonsAreThoseOfTheChoice) {
  const std::string text = kernel_coverage(/*markdown=*/false);
  EXPECT_THAT(text, HasSubstr("block selection where l'/d does not divide 128"));
  EXPECT_THAT(text, HasSubstr("more shared memory a block of threads than 99 KB"));
  EXPECT_THAT(text, HasSubstr("sm_80 kernels from PTX"));
}

TEST(Coverage, AMissingReportIsNamed) {
  EXPECT_THAT(recorded_times("/nowhere", true), HasSubstr("No report /nowhere/cpu-epyc.json."));
}

TEST(Boxes, JoinWhatDiffersInOneAxis) {
  std::vector<Box> points;
  for (size_t x = 0; x < 3; ++x)
    for (size_t y = 0; y < 2; ++y) points.push_back({{{x}, {y}}, {x == 2 && y == 1 ? "b" : "a"}});
  const std::vector<Box> boxes = join_boxes(points);
  ASSERT_EQ(boxes.size(), 3u);
  EXPECT_EQ(boxes[0].sets, (std::vector<std::vector<size_t>>{{0, 1}, {0, 1}}));
  EXPECT_EQ(boxes[1].sets, (std::vector<std::vector<size_t>>{{2}, {0}}));
  EXPECT_EQ(boxes[2].value, std::vector<std::string>{"b"});
}

TEST(Boxes, SetsAreReadable) {
  const Axis axis{"G", {"1", "2", "4", "8"}};
  EXPECT_EQ(set_text(axis, {0, 1, 2, 3}, true), "any");
  EXPECT_EQ(set_text(axis, {1, 2, 3}, true), "2 to 8");
  EXPECT_EQ(set_text(axis, {1, 2, 3}, false), "2, 4, 8");
  EXPECT_EQ(set_text(axis, {0, 2, 3}, true), "1, 4, 8");
}

}  // namespace
}  // namespace suites

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/testing/paths.h"
#include "harness/schema/read.h"
#include "reports/render.h"

/// testdata/results.json must render to the committed files, byte for byte. After a wanted change:
/// NSA_UPDATE_GOLDEN=1 reports_golden_test, then read the difference.
namespace reports {
namespace {

const std::string kFolder = base::source_dir() + "/reports/testdata/";

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

harness::Results golden_results() {
  const std::string path = kFolder + "results.json";
  return harness::read_json<harness::Results>(read_file(path), path);
}

TEST(Golden, EveryReportIsAsCommitted) {
  const harness::Results results = golden_results();
  for (const Renderer& renderer : renderers()) {
    const std::string path = kFolder + std::string(renderer.file);
    const std::string text = render(renderer.file, results);
    if (std::getenv("NSA_UPDATE_GOLDEN")) std::ofstream(path, std::ios::binary) << text;
    const std::string expected = read_file(path);
    EXPECT_FALSE(expected.empty()) << path;
    EXPECT_EQ(text, expected) << path;
  }
}

TEST(Golden, TwiceTheSameBytes) {
  const harness::Results once = golden_results(), again = golden_results();
  for (const Renderer& renderer : renderers())
    EXPECT_EQ(render(renderer.file, once), render(renderer.file, again)) << renderer.file;
}

}  // namespace
}  // namespace reports

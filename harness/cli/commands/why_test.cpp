#include <gmock/gmock.h>

#include <cstdlib>

#include "base/testing/paths.h"
#include "harness/cli/commands/commands.h"
#include "harness/cli/testing.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"

namespace harness::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string sample(const std::string& name) {
  return base::source_dir() + "/reports/samples/" + name;
}

Options of(const std::string& a, const std::string& b) {
  Options options;
  options.target = a;
  options.against = b;
  return options;
}

TEST(WhyCommand, ARunAndItselfHaveNoDifference) {
  const Options options = of(sample("single_gpu-h200"), sample("single_gpu-h200"));
  const Printed text = printed(why_command, options);
  EXPECT_EQ(text.exit_code, 5);
  EXPECT_THAT(text.out, HasSubstr("Not decidable: the intervals of the measured steps touch"));
  EXPECT_THAT(text.out, HasSubstr("`hotspots.ranges`"));
  Options as_json = options;
  as_json.json = true;
  EXPECT_EQ(nlohmann::json::parse(printed(why_command, as_json).out)[0]["recorded_delta_ms"], 0);
}

TEST(WhyCommand, TheFolderHasThePageAndItsPlot) {
  const TempDir dir;
  Options options = of(sample("single_gpu-h200"), sample("single_gpu-h200"));
  options.out = (dir / "why").string();
  EXPECT_THAT(printed(why_command, options).out, HasSubstr("why/why.md"));
  EXPECT_THAT(read_bytes(dir / "why/why.md"), HasSubstr("](plots/why-hotspots.svg)"));
}

TEST(WhyCommand, WithoutGnuplotThePageNamesNoPicture) {
  const TempDir dir;
  Options options = of(sample("single_gpu-h200"), sample("single_gpu-h200"));
  options.out = (dir / "why").string();
  const std::string path = std::getenv("PATH");
  setenv("PATH", "/nowhere", 1);
  printed(why_command, options);
  setenv("PATH", path.c_str(), 1);
  const std::string page = read_bytes(dir / "why/why.md");
  EXPECT_THAT(page, testing::Not(HasSubstr(".svg")));
  EXPECT_THAT(page, HasSubstr("(no plot: gnuplot is not installed)"));
}

TEST(WhyCommand, RunsThatDoNotCompareAreNamed) {
  const auto refused = [](const std::string& a, const std::string& b) {
    return error_of([&] { printed(why_command, of(sample(a), sample(b))); });
  };
  EXPECT_THAT(refused("smoke_cpu", "single_h200-h200"),
              HasSubstr("a profile of one machine does not explain another"));
  EXPECT_THAT(refused("single_h200-h200", "single_h200-slower"),
              HasSubstr("record one in each: nsa-validate --runbook single_h200 --only hotspots"));
  EXPECT_THAT(refused("smoke_cpu", "smoke_cpu"), HasSubstr("no phase of smoke_cpu records one"));
}

}  // namespace
}  // namespace harness::cli

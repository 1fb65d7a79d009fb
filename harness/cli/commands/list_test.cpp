#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "harness/cli/commands/commands.h"
#include "harness/cli/testing.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/schema/error.h"

namespace harness::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// Everything shipped has its use, so that nothing stands below "Others"; a line each.
TEST(List, NamesEveryShippedRunbookByUseInALineEach) {
  Options options;
  options.configs = shipped_configs();
  const Printed text = printed(list_command, options);
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, testing::StartsWith("On a CPU\n"));
  EXPECT_THAT(text.out, HasSubstr("\n  smoke_cpu             Smoke run"));
  EXPECT_THAT(text.out, testing::Not(HasSubstr("Others")));
  const size_t users = text.out.find("  smoke_cpu "), own = text.out.find("  ab_control ");
  EXPECT_LT(users, text.out.find("The instrument's own checks"));
  EXPECT_GT(own, text.out.find("The instrument's own checks"));
  std::istringstream lines(text.out);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 100U) << line;
    EXPECT_THAT(line, testing::Not(HasSubstr("…"))) << "a title is one line";
  }
  options.json = true;
  const auto all = nlohmann::json::parse(printed(list_command, options).out);
  EXPECT_EQ(static_cast<std::ptrdiff_t>(all.size()),
            std::distance(fs::directory_iterator(fs::path(shipped_configs()) / "runbooks"), {}));
  for (const auto& book : all) EXPECT_FALSE(book["phases"].empty()) << book["name"];
}

TEST(List, ANameShowsScopeAndPhases) {
  Options options;
  options.configs = shipped_configs();
  options.name = "pr19_throughput";
  const std::string out = printed(list_command, options).out;
  EXPECT_THAT(out, HasSubstr("pr19_throughput: Selection v2 on two GPUs"));
  EXPECT_THAT(out, HasSubstr("\nscope: "));
  EXPECT_THAT(out, testing::ContainsRegex("\n  environment +[0-9.]+ min  +[A-Z]"));
  EXPECT_THAT(out, testing::ContainsRegex(" min  GPUs >=2 "));
  options.name = "smoke_cpo";
  EXPECT_THAT(error_of([&] { printed(list_command, options); }),
              HasSubstr("did you mean 'smoke_cpu'"));
}

TEST(List, ABrokenRunbookIsNamedWithItsPlace) {
  const TempDir dir;
  fs::copy(shipped_configs(), dir.path(), fs::copy_options::recursive);
  std::ofstream(dir / "runbooks/broken.json") << "{\"schema\": \"nsa-runbook/1\",\n \"nam\": 1}";
  Options options;
  options.configs = dir.path().string();
  try {
    printed(list_command, options);
    ADD_FAILURE();
  } catch (const ConfigError& e) {
    EXPECT_THAT(e.what(), HasSubstr("runbooks/broken.json:2:2: unknown key 'nam'"));
  }
}

TEST(List, HostileTitlesDoNotSteerTheTerminal) {
  const TempDir dir;
  fs::copy(shipped_configs(), dir.path(), fs::copy_options::recursive);
  std::ofstream(dir / "runbooks/odd.json")
      << R"({"schema": "nsa-runbook/1", "name": "odd", "extends": "smoke_cpu", "title": "a\u001b[31m\nb"})";
  Options options;
  options.configs = dir.path().string();
  const std::string out = printed(list_command, options).out;
  EXPECT_EQ(out.find('\x1b'), std::string::npos);
  EXPECT_THAT(out, HasSubstr("a [31m b"));
}

}  // namespace
}  // namespace harness::cli

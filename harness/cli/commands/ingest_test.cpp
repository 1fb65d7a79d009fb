#include <gmock/gmock.h>

#include "harness/cli/commands/commands.h"
#include "harness/cli/testing.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"

namespace harness::cli {
namespace {

using testing::HasSubstr;

class IngestCommand : public testing::Test {
 protected:
  /// A report with ten repetitions of one benchmark.
  std::string file(const std::string& name, double ms) {
    nlohmann::json report = {{"context", {{"library_build_type", "release"}}},
                             {"benchmarks", nlohmann::json::array()}};
    for (int i = 0; i < 10; ++i)
      report["benchmarks"].push_back({{"name", "copy"},
                                      {"repetition_index", i},
                                      {"iterations", 3},
                                      {"real_time", ms + 0.001 * i},
                                      {"cpu_time", ms},
                                      {"time_unit", "ms"}});
    write_bytes(dir_ / name, report.dump());
    return (dir_ / name).string();
  }
  TempDir dir_;
  Options options_;
};

TEST_F(IngestCommand, PrintsFiguresWithIntervals) {
  options_.target = file("a.json", 2);
  const Printed text = printed(ingest_command, options_);
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, HasSubstr("| copy "));
  EXPECT_THAT(text.out, HasSubstr("2.005 \\[2, 2.009\\] ms"));
}

TEST_F(IngestCommand, CompareTakesTwoFiles) {
  options_.target = file("a.json", 2), options_.against = file("b.json", 3);
  const Printed text = printed(compare_command, options_);
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, HasSubstr("slower"));
  options_.json = true;
  const auto parsed = nlohmann::json::parse(printed(compare_command, options_).out);
  EXPECT_EQ(parsed["tables"][0]["rows"][0][4], "slower");
}

TEST_F(IngestCommand, WhatIsNoReportIsNamed) {
  options_.target = (dir_ / "none.json").string();
  EXPECT_THAT(error_of([&] { printed(ingest_command, options_); }), HasSubstr("none.json"));
  write_bytes(dir_ / "x.json", "[]");
  options_.target = (dir_ / "x.json").string();
  EXPECT_THAT([&] { printed(ingest_command, options_); },
              testing::ThrowsMessage<Error>(HasSubstr("neither Google Benchmark nor GoogleTest")));
  options_.against = options_.target;
  EXPECT_THAT(error_of([&] { printed(compare_command, options_); }),
              HasSubstr("is no report of Google Benchmark"));
}

}  // namespace
}  // namespace harness::cli

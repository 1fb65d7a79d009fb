#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "harness/evidence/storage/temp_dir.h"
#include "harness/phases/builtin_phases.h"
#include "harness/phases/run_alone.h"

namespace harness {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// A worker that reports one check and two samples of series v2, and records its start.
void write_worker(const fs::path& bin, const std::string& build, double ms, bool right = true,
                  const std::string& status = "ok") {
  fs::create_directories(bin);
  std::ofstream(bin / "nsa-worker") << "#!/bin/sh\nread line\necho " << build << " >> "
                                    << (bin.parent_path() / "starts").string() << R"(
cat > "$2" <<END
{"type":"hello","t":0,"v":1,"program":"fake","build_id":")"
                                    << build << R"(","pid":1,"rank":0,"world":1,"device":"cpu"}
{"type":"check","t":0,"case":"injected","id":"oracle/v2","ok":)"
                                    << (right ? "true" : "false") << R"(,"detail":"worst 0.5"}
{"type":"sample","t":0,"case":"injected","series":"v2","value":)"
                                    << ms << R"(,"unit":"ms","round":0,"order":0}
{"type":"sample","t":0,"case":"injected","series":"v2","value":)"
                                    << ms + 2 << R"(,"unit":"ms","round":0,"order":1}
{"type":"case","t":0,"case":"injected","status":")"
                                    << status << R"(","reason":"out of memory"}
{"type":"done","t":0,"lines":5}
END
)";
  fs::permissions(bin / "nsa-worker", fs::perms::owner_all);
}

class BinariesAb : public testing::Test {
 protected:
  base::protocol::Transcript run(nlohmann::json args = nlohmann::json::object()) {
    nlohmann::json all = {{"base_bin", (dir_ / "base").string()},
                          {"worker", "ranges_ab"},
                          {"series", {{"ranges", "v2"}}}};
    all.update(args);
    fs::remove(dir_ / "raw.jsonl");
    run_alone(dir_ / "raw.jsonl", all, [&](const BuiltinCall& call, auto& emitter) {
      run_binaries_ab(dir_ / "head", call, emitter);
    });
    return base::protocol::read_transcript(read_bytes(dir_ / "raw.jsonl"), {"time", {"all"}});
  }
  std::vector<std::string> starts() const {
    std::ifstream in(dir_ / "starts");
    return {std::istream_iterator<std::string>(in), {}};
  }
  static std::string why(const base::protocol::Transcript& transcript) {
    return transcript.ended.at("all").reason;
  }
  TempDir dir_;
};

TEST_F(BinariesAb, BothBuildsAreStartedInPalindromesAndTheirMediansAreReported) {
  write_worker(dir_ / "base", "old", 10);
  write_worker(dir_ / "head", "new", 20);
  const auto transcript = run();
  EXPECT_TRUE(transcript.violations.empty());
  const auto order = starts();
  ASSERT_EQ(order.size(), 6u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(order[i], order[5 - i]);
  std::map<std::string, std::vector<double>> values;
  for (const auto& line : transcript.lines)
    if (const auto* sample = std::get_if<base::protocol::Sample>(&line.message))
      values[sample->series].push_back(*sample->value);
  EXPECT_EQ(values["ranges.base"], std::vector<double>({11, 11}));
  EXPECT_EQ(values["ranges.base.aa"], std::vector<double>({11, 11}));
  EXPECT_EQ(values["ranges.head"], std::vector<double>({21, 21}));
  const auto differ = [](const auto& metric) { return metric.name == "all.differ_bool"; };
  EXPECT_EQ(find_line<base::protocol::Metric>(transcript, differ)->value, true);
}

TEST_F(BinariesAb, AWrongOutputIsACheckThatFails) {
  write_worker(dir_ / "base", "old", 10);
  write_worker(dir_ / "head", "new", 5, false, "failed");
  const auto transcript = run();
  const auto* check =
      find_line<base::protocol::Check>(transcript, [](const auto& c) { return !c.ok; });
  ASSERT_NE(check, nullptr);
  EXPECT_EQ(check->id, "outputs/head");
  EXPECT_EQ(check->code, "SPEEDUP_WITHHELD");
  EXPECT_THAT(check->detail, HasSubstr("oracle/v2"));
}

// Left out, a head whose calls are not even timed would be as fast as the rest of them.
TEST_F(BinariesAb, ANullSampleFailsTheCase) {
  write_worker(dir_ / "base", "old", 10);
  write_worker(dir_ / "head", "new", 10);
  std::string text = read_bytes(dir_ / "head/nsa-worker");
  const std::string last = "\"value\":12,";
  text.replace(text.find(last), last.size(), "\"value\":null,\"reason\":\"not finite: inf\",");
  write_bytes(dir_ / "head/nsa-worker", text);
  fs::permissions(dir_ / "head/nsa-worker", fs::perms::owner_all);
  EXPECT_EQ(why(run()), "head reported a null sample of series 'v2': not finite: inf");
}

TEST_F(BinariesAb, WithoutBothBuildsNothingIsMeasured) {
  write_worker(dir_ / "head", "new", 5);
  EXPECT_THAT(why(run({{"base_bin", ""}})), HasSubstr("args.base_bin must be given"));
  EXPECT_THAT(why(run()), HasSubstr("base ("));
  write_worker(dir_ / "base", "old", 10, true, "failed");
  EXPECT_THAT(why(run()), HasSubstr("out of memory"));
  write_worker(dir_ / "base", "old", 10);
  EXPECT_THAT(why(run({{"series", {{"ranges", "v3"}}}})), HasSubstr("no samples of series 'v3'"));
}

TEST_F(BinariesAb, TheSameBuildTwiceIsReported) {
  write_worker(dir_ / "base", "same", 10);
  const auto transcript = run({{"head_bin", (dir_ / "base").string()}});
  const auto differ = [](const auto& metric) { return metric.name == "all.differ_bool"; };
  EXPECT_EQ(find_line<base::protocol::Metric>(transcript, differ)->value, false);
}

TEST_F(BinariesAb, BuildsWithoutAnIdAreNotCalledTheSame) {
  write_worker(dir_ / "base", "unknown", 10);
  write_worker(dir_ / "head", "new", 10);
  const auto transcript = run();
  const auto* differ = find_line<base::protocol::Metric>(
      transcript, [](const auto& metric) { return metric.name == "all.differ_bool"; });
  EXPECT_EQ(differ->value, nullptr);
  EXPECT_EQ(differ->reason, "a build has no build id");
}

}  // namespace
}  // namespace harness

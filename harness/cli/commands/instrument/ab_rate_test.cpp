// What ab-rate refuses before it counts; counting itself is shown with the real worker in
// suites/end_to_end/ab_rate_test.
#include <gmock/gmock.h>

#include "harness/cli/commands/commands.h"
#include "harness/cli/paths.h"
#include "harness/cli/testing.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"

namespace harness::cli {
namespace {

using testing::HasSubstr;

class AbRateTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.configs = shipped_configs();
    options_.out = (dir_ / "tally.jsonl").string();
  }
  std::string refusal(const std::string& phases) {
    write_bytes(dir_ / "book.json", R"({"schema": "nsa-runbook/1", "name": "book", "title": "t",
      "scope": "s", "device": "cpu", "phases": [)" +
                                        phases + "]}");
    options_.runbook = (dir_ / "book.json").string();
    return error_of([&] { printed(ab_rate_command, options_); });
  }
  TempDir dir_;
  Options options_;
};

constexpr const char* kAb =
    R"({"id": "ab", "title": "t", "run": "nsa-worker:ab_control", "processes": 10, "criteria": [
    {"id": "C-ab", "text": "t", "metric": "ab.same_vs_base.speedup_ratio", "op": "<=", "value": 2,
     "source": "physical: w", "unit": "ratio", "severity": "blocker", "evidence": "samples"}])";
constexpr const char* kOther =
    R"({"id": "e", "title": "t", "run": "builtin:environment", "criteria": [{"id": "C-e", "text": "t",
    "metric": "e.switches.unknown_count", "op": "==", "value": 0, "unit": "count", "severity": "major",
    "evidence": "record"}]})";

TEST_F(AbRateTest, OnePhaseOfTheWorkerIsCountedAndNoOther) {
  const std::string wanted = "runbook 'book' must have one phase, of nsa-worker";
  EXPECT_THAT(refusal(kOther), HasSubstr(wanted));
  EXPECT_THAT(refusal(kAb + std::string("}, ") + kOther), HasSubstr(wanted));
}

TEST_F(AbRateTest, APhaseThatWouldNotRunHereIsRefusedWithTheReason) {
  EXPECT_THAT(refusal(kAb + std::string(R"(, "require": {"gpu.count": ">=99"}})")),
              HasSubstr("phase ab must run here: GPU_COUNT: gpu.count"));
}

TEST_F(AbRateTest, AFileOfSomethingElseIsNotWrittenOver) {
  if (!std::filesystem::exists(program_dir() / "nsa-worker"))
    GTEST_SKIP() << "nsa-worker is not built without LibTorch; with it the preset cuda tries this";
  write_bytes(dir_ / "tally.jsonl", "{\"format\": \"other\"}\n");
  EXPECT_THAT(refusal(kAb + std::string("}")), HasSubstr("tally.jsonl"));
  EXPECT_EQ(read_bytes(dir_ / "tally.jsonl"), "{\"format\": \"other\"}\n");
}

}  // namespace
}  // namespace harness::cli

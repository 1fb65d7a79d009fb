// From the lines of a phase's raw files to what figures are made of.
#include "harness/evidence/derive/raw_evidence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/protocol/emitter.h"
#include "harness/evidence/mini_run.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"

namespace harness {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class RawEvidenceTest : public testing::Test {
 protected:
  void SetUp() override {
    write_mini_run(dir_.path());
    completed_.status = StepStatus::kCompleted;
    failed_.status = StepStatus::kFailed;
  }

  RawPhase read(const std::string& phase, const PhaseEnd& end) const {
    const RunFolder run(dir_.path());
    const RunFiles files = read_run_files(run);
    for (const PlannedPhase& planned : files.plan.phases)
      if (planned.id == phase) return read_raw_phase(run, files, planned, end);
    throw std::runtime_error("no phase " + phase);
  }

  fs::path file(const std::string& name) const { return dir_ / "phases/conform" / name; }

  /// The one file of phase `conform`; `emit` writes the lines between hello and done.
  template <class Emit>
  void write_conform(const std::string& name, Emit emit) const {
    fs::remove(file(name));
    base::protocol::Emitter emitter(file(name));
    emitter.hello({.program = "p", .build_id = "b"});
    emit(emitter);
    emitter.done();
  }
  static void end_both(base::protocol::Emitter& emitter) {
    emitter.end_case("even");
    emitter.end_case("odd");
  }
  TempDir dir_;
  PhaseEnd completed_, failed_;
};

TEST_F(RawEvidenceTest, EveryGroupIsReadInTheOrderOfThePlan) {
  const RawPhase speed = read("speed", completed_);
  EXPECT_THAT(speed.problems, IsEmpty());
  ASSERT_THAT(speed.groups, SizeIs(8));
  EXPECT_EQ(speed.groups[7].id, "g08");
  EXPECT_EQ(speed.groups[7].file, "phases/speed/g08.jsonl");
  EXPECT_EQ(speed.groups[7].hello.program, "mini");
  ASSERT_THAT(speed.view.groups, SizeIs(8));
  EXPECT_THAT(speed.view.groups[7].samples, SizeIs(20));
  EXPECT_EQ(speed.view.groups_planned, 8);
  EXPECT_EQ(speed.cases_planned, 8);
  EXPECT_EQ(speed.cases_ok, 8);
  EXPECT_EQ(speed.cases.front().id, "g01/speed");
}

TEST_F(RawEvidenceTest, LinesGoWhereFiguresTablesAndFindingsLookForThem) {
  write_conform("g01.jsonl", [](base::protocol::Emitter& emitter) {
    emitter.check({.case_id = "even", .id = "a", .ok = false, .code = "X", .detail = "d"});
    emitter.metric({.case_id = "even", .name = "on_bool", .value = true, .unit = "bool"});
    emitter.metric(
        {.case_id = "even", .name = "no_ms", .value = nullptr, .unit = "ms", .reason = "why"});
    emitter.beat({.case_id = "even", .step = 9, .of = 9, .at = "warm-up"});
    emitter.beat({.case_id = "even", .step = 2, .of = 9, .at = "step"});
    emitter.beat({.case_id = "odd", .step = 1, .of = 9, .at = "step"});
    emitter.finding({.code = "SLOW_RANK", .symptom = "s"});
    emitter.table({.case_id = "even", .id = "t", .title = "T", .columns = {"c"}, .rows = {{1}}});
    emitter.end_case("even");
    emitter.fail_case("odd", "because");
  });
  const RawPhase phase = read("conform", completed_);
  const GroupEvidence& view = phase.view.groups.at(0);
  ASSERT_THAT(view.checks, SizeIs(1));
  EXPECT_EQ(view.checks[0].code, "X");
  ASSERT_THAT(view.metrics, SizeIs(2));
  EXPECT_EQ(view.metrics[0].value, 1.0);
  EXPECT_EQ(view.metrics[1].value, std::nullopt);
  EXPECT_EQ(view.metrics[1].reason, "why");
  EXPECT_THAT(phase.groups[0].steps, SizeIs(2)) << "a warm-up is no step";
  EXPECT_EQ(phase.groups[0].last_step, 2);
  EXPECT_EQ(phase.groups[0].findings.at(0).code, "SLOW_RANK");
  EXPECT_EQ(phase.groups[0].tables.at(0).id, "t");
  EXPECT_EQ(phase.cases_ok, 1);
  ASSERT_THAT(phase.cases, SizeIs(2));
  EXPECT_EQ(phase.cases[0].status, "ok");
  EXPECT_EQ(phase.cases[1].status, "failed");
  EXPECT_EQ(phase.cases[1].reason, "because");
}

/// A sample that is null stands for what could not be measured: nothing is made of it.
TEST_F(RawEvidenceTest, ANullSampleKeepsItsReason) {
  const std::string path = "phases/speed/g01.jsonl";
  std::string text = read_bytes(dir_ / path);
  const size_t at = text.find("\"value\":4.0");
  ASSERT_NE(at, std::string::npos);
  const size_t end = text.find_first_of(",}", at);
  text.replace(at, end - at, "\"value\":null,\"reason\":\"not measured\"");
  write_bytes(dir_ / path, text);
  const RawPhase speed = read("speed", completed_);
  EXPECT_EQ(speed.groups[0].unusable, "");
  const auto& samples = speed.view.groups[0].samples;
  ASSERT_THAT(samples, SizeIs(20));
  EXPECT_EQ(std::ranges::count(samples, "not measured", &SampleLine::null_reason), 1)
      << "the figure learns of it, and is none";
}

TEST_F(RawEvidenceTest, ABrokenRuleMakesTheWholeFileUnusable) {
  std::string text = read_bytes(file("g01.jsonl"));
  text.resize(text.rfind("{\"", text.size() - 2));  // without its last line
  write_bytes(file("g01.jsonl"), text);
  const RawPhase phase = read("conform", completed_);
  EXPECT_THAT(phase.groups[0].unusable, HasSubstr("NO_DONE"));
  EXPECT_EQ(phase.groups[0].hello.program, "mini") << "who spoke is known all the same";
  EXPECT_THAT(phase.view.groups[0].checks, IsEmpty());
  EXPECT_EQ(phase.cases_ok, 0);
  EXPECT_EQ(phase.cases[0].status, "missing");
  ASSERT_THAT(phase.problems, SizeIs(1));
  EXPECT_EQ(phase.problems[0].file(), "phases/conform/g01.jsonl");
  EXPECT_THAT(read("conform", failed_).problems, IsEmpty()) << "a phase that FAILED may leave half";
}

TEST_F(RawEvidenceTest, AMissingFileIsAProblemWhereThePhaseCompleted) {
  fs::remove(file("g01.jsonl"));
  const RawPhase phase = read("conform", completed_);
  ASSERT_THAT(phase.problems, SizeIs(1));
  EXPECT_THAT(phase.problems[0].what(), HasSubstr("is missing, and phase.json records COMPLETED"));
  ASSERT_THAT(phase.groups, SizeIs(1));
  EXPECT_EQ(phase.groups[0].unusable, "no raw evidence");
  EXPECT_THAT(phase.cases, SizeIs(2));
  EXPECT_THAT(read("conform", failed_).problems, IsEmpty());
}

TEST_F(RawEvidenceTest, APhaseThatDidNotRunHasNoGroupsAndReportsWhy) {
  PhaseEnd deferred;
  deferred.status = StepStatus::kDeferred;
  deferred.reason = "no GPU";
  const RawPhase phase = read("conform", deferred);
  EXPECT_EQ(phase.view.missing, "phase is DEFERRED: no GPU");
  EXPECT_THAT(phase.groups, IsEmpty()) << "what lies there is of another attempt";
  EXPECT_EQ(phase.cases_planned, 2);
  EXPECT_EQ(phase.cases_ok, 0);
}

TEST_F(RawEvidenceTest, ACaseOfSeveralRanksIsOkWhenEachOfThemReportsIt) {
  fs::remove(file("g01.jsonl"));
  write_conform("g01.r0.jsonl", end_both);
  write_conform("g01.r1.jsonl", end_both);
  RawPhase phase = read("conform", completed_);
  EXPECT_THAT(phase.problems, IsEmpty());
  EXPECT_EQ(phase.groups.at(1).id, "g01.r1");
  EXPECT_EQ(phase.cases_ok, 2) << "a case counts once";
  write_conform("g01.r1.jsonl", [](base::protocol::Emitter& emitter) {
    emitter.end_case("even");
    emitter.fail_case("odd", "lost a rank");
  });
  EXPECT_EQ(read("conform", completed_).cases_ok, 1);
}

/// Attempts that were set aside are kept, and count for nothing.
TEST_F(RawEvidenceTest, EarlierAttemptsAreNotRead) {
  fs::copy_file(file("g01.jsonl"), file("g01.a1.jsonl"));
  EXPECT_THAT(read("conform", completed_).groups, SizeIs(1));
  fs::remove(file("g01.jsonl"));
  EXPECT_THAT(read("conform", completed_).problems, SizeIs(1));
}

}  // namespace
}  // namespace harness

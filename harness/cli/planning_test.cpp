// What a command line makes of a runbook on this machine.
#include "harness/cli/planning.h"

#include <gmock/gmock.h>

#include "harness/cli/testing.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"

namespace harness::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

Options of(const std::string& runbook) {
  Options options;
  options.configs = shipped_configs();
  options.runbook = runbook;
  return options;
}

const PlannedPhase& phase_of(const Planned& planned, const std::string& id) {
  for (const PlannedPhase& phase : planned.plan.phases)
    if (phase.id == id) return phase;
  throw std::runtime_error("no phase " + id);
}

TEST(Planning, WrongOptionsNameTheirRemedy) {
  Options none = of("smoke_cpu");
  none.runbook.clear();
  EXPECT_THAT(error_of([&] { plan_here(none); }), HasSubstr("give --runbook NAME"));
  Options misspelt = of("smoke_cpu");
  misspelt.runbook = "smoke_cpi";
  EXPECT_THAT(error_of([&] { plan_here(misspelt); }), HasSubstr("did you mean 'smoke_cpu'?"));
  Options phase = of("smoke_cpu");
  phase.skip = {"orakle"};
  EXPECT_THAT(error_of([&] { plan_here(phase); }),
              HasSubstr("--skip 'orakle': no such phase in runbook 'smoke_cpu'"));
  Options argument = of("smoke_cpu");
  argument.set = {"train_text.stepps=5"};
  EXPECT_THAT(error_of([&] { plan_here(argument); }), HasSubstr("'steps'"));
  Options hostile = of("smoke_cpu");
  hostile.runbook = std::string("\x1b[31m\n\xff") + std::string(5000, 'x');
  const std::string error = error_of([&] { plan_here(hostile); });
  EXPECT_EQ(error.find('\x1b'), std::string::npos);
  EXPECT_LT(error.size(), 1000U);
}

/// With phases of the engine alone, which run wherever it was built.
TEST(Planning, OnlySkipAndSetReachThePlan) {
  const TempDir dir;
  const auto criterion = [](const std::string& metric) {
    return R"("criteria": [{"id": "C-)" + metric + R"(", "text": "t", "metric": ")" + metric +
           R"(", "op": "==", "value": 0, "unit": "count", "severity": "major",
           "evidence": "record"}]})";
  };
  write_bytes(dir / "book.json",
              R"({"schema": "nsa-runbook/1", "name": "book", "title": "t", "scope": "s",
    "device": "cpu", "phases": [{"id": "here", "title": "t", "run": "builtin:environment", )" +
                  criterion("here.git.dirty_count") +
                  R"(, {"id": "tree", "title": "t", "run": "builtin:checkout",
    "args": {"commit": "base"}, )" +
                  criterion("tree.programs.checked_count") + "]}");
  Options options = of((dir / "book.json").string());
  options.only = {"here"};
  options.set = {"tree.commit=head"};
  Planned planned = plan_here(options);
  EXPECT_EQ(phase_of(planned, "here").decision, Decision::kRun);
  EXPECT_EQ(phase_of(planned, "tree").decision, Decision::kSkip);
  EXPECT_EQ(phase_of(planned, "tree").args["commit"], "head");
  options.only.clear();
  options.skip = {"here"};
  planned = plan_here(options);
  EXPECT_EQ(phase_of(planned, "here").decision, Decision::kSkip);
  EXPECT_NE(phase_of(planned, "tree").decision, Decision::kSkip);
}

/// The file of a CI run reaches the phase that reads it by its full path, whatever folder the run
/// is started in, and makes it run.
TEST(Planning, AFileOfCiIsHandedToThePhaseThatReadsIt) {
  const TempDir dir;
  write_bytes(dir / "book.json", R"({"schema": "nsa-runbook/1", "name": "book", "title": "t",
    "scope": "s", "device": "cpu", "phases": [{"id": "ci", "title": "c", "run": "builtin:ci_status",
    "require": {"ci.status": "given"}, "required": "no", "criteria": [{"id": "C-ci", "text": "green",
    "metric": "ci.tests.failed_count", "op": "==", "value": 0, "unit": "count", "severity": "major",
    "evidence": "tests"}]}]})");
  Options options = of((dir / "book.json").string());
  EXPECT_EQ(phase_of(plan_here(options), "ci").decision, Decision::kDefer);
  const WorkingDir here(dir.path());
  options.ci_status = "junit.xml";
  const Planned planned = plan_here(options);
  EXPECT_EQ(phase_of(planned, "ci").decision, Decision::kRun);
  EXPECT_EQ(phase_of(planned, "ci").args["file"], fs::absolute("junit.xml").string());
  EXPECT_TRUE(planned.plan.deviations.empty()) << "an answer is no deviation";
}

/// Without a change to judge the phase is deferred and names the missing arguments; with one it
/// runs.
TEST(Planning, AScopePhaseRunsOnceItsChangeIsNamed) {
  Options options = of("pr36_loader_warmup");
  const PlannedPhase waiting = phase_of(plan_here(options), "scope");
  EXPECT_EQ(waiting.decision, Decision::kDefer);
  EXPECT_THAT(waiting.reason, HasSubstr("PHASE.base=COMMIT"));
  options.set = {"scope.base=HEAD~1", "scope.paths=[\"nsa/train/data/*\"]"};
  const Planned planned = plan_here(options);
  EXPECT_EQ(phase_of(planned, "scope").decision, Decision::kRun);
  EXPECT_TRUE(planned.plan.deviations.empty()) << "an answer is no deviation";
}

TEST(Planning, RefusesACiFileThatNoPhaseReads) {
  Options options = of("smoke_cpu");
  options.ci_status = "junit.xml";
  EXPECT_THAT(error_of([&] { plan_here(options); }),
              HasSubstr("runbook smoke_cpu has no phase builtin:ci_status that would read it"));
}

TEST(SelectionText, NamesWhatWasAddedAndWhy) {
  Plan plan;
  EXPECT_EQ(selection_text({}, plan), "");
  EXPECT_EQ(selection_text({"oracle"}, plan), "oracle");
  plan.added = {"environment"};
  EXPECT_EQ(selection_text({"oracle", "gate_health"}, plan),
            "oracle, gate_health; also environment, which they need");
  EXPECT_EQ(selection_text({"oracle"}, plan), "oracle; also environment, which it needs");
}

}  // namespace
}  // namespace harness::cli

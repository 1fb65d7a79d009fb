// The files that a run is judged by, when a process of the run writes over them.
#include "harness/engine/inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/engine/testing.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/schema/error.h"

namespace harness {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Inputs, WhatWasPlannedIsPutBackAndTheRestIsKept) {
  const TempDir dir;
  write_bytes(dir / "plan.json", "planned");
  write_bytes(dir / "run.json", "run");
  write_bytes(dir / "kinds.json", "kinds");
  Inputs inputs(dir.path());
  EXPECT_THAT(inputs.restore(), IsEmpty());
  EXPECT_FALSE(fs::exists(dir / "rewritten"));
  write_bytes(dir / "plan.json", "another");
  write_bytes(dir / "baseline.json", "injected");
  fs::remove(dir / "run.json");
  fs::remove(dir / "kinds.json");
  fs::create_symlink("plan.json", dir / "kinds.json");
  EXPECT_THAT(inputs.restore(),
              ElementsAre("baseline.json", "kinds.json", "plan.json", "run.json"));
  EXPECT_EQ(read_bytes(dir / "plan.json"), "planned");
  EXPECT_EQ(read_bytes(dir / "run.json"), "run");
  EXPECT_FALSE(fs::is_symlink(dir / "kinds.json"));
  EXPECT_FALSE(fs::exists(dir / "baseline.json"));
  EXPECT_EQ(read_bytes(dir / "rewritten/plan.json"), "another");
  EXPECT_EQ(read_bytes(dir / "rewritten/run.json"), "(removed)\n");
  EXPECT_THAT(inputs.restore(), IsEmpty());
}

TEST(Inputs, TheTraceOfAChangeCannotBeRemoved) {
  const TempDir dir;
  write_bytes(dir / "plan.json", "planned");
  Inputs inputs(dir.path());
  write_bytes(dir / "plan.json", "another");
  inputs.restore();
  fs::remove_all(dir / "rewritten");
  EXPECT_THAT(inputs.restore(), IsEmpty());
  EXPECT_EQ(read_bytes(dir / "rewritten/plan.json"), "another");
}

/// An engine that is killed between the two leaves the trace.
TEST(Inputs, TheTraceIsWrittenBeforeTheFileIsPutBack) {
  const TempDir dir;
  write_bytes(dir / "plan.json", "planned");
  Inputs inputs(dir.path());
  write_bytes(dir / "plan.json", "another");
  fs::create_directories(dir / "rewritten/plan.json/full");  // no trace can be written
  EXPECT_THROW(inputs.restore(), Error);
  EXPECT_EQ(read_bytes(dir / "plan.json"), "another");
}

TEST(Inputs, AWorkerDoesNotChangeWhatItsRunIsJudgedBy) {
  for (const char* file :
       {"run.json", "runbook.json", "kinds.json", "plan.json", "environment.json"}) {
    FakeRun run(std::string("rewrites_") + file);
    run.add("one", "rewrite").args["file"] = file;
    run.go();
    EXPECT_EQ(run.end_of("one"), "COMPLETED") << run.record("one").reason;
    EXPECT_THAT(read_bytes(run.file(file)), testing::Not(HasSubstr("rewritten by a worker")));
    EXPECT_THAT(read_bytes(run.file(std::string("rewritten/") + file)),
                HasSubstr("rewritten by a worker"));
    EXPECT_THAT(run.observer.notes, Contains(HasSubstr(file)));
  }
}

}  // namespace
}  // namespace harness

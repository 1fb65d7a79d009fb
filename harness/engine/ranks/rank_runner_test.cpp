// Groups of several ranks: a process and a raw file each, one outcome for all.
#include "harness/engine/ranks/rank_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "base/protocol/lines.h"
#include "harness/engine/testing.h"

namespace harness {
namespace {

using ::testing::HasSubstr;

PlannedPhase& add_ranks(FakeRun& run, const std::string& behaviour, int ranks) {
  auto& phase = run.add("ddp", behaviour);
  phase.program = "nsa-train";
  phase.args["ranks"] = ranks;
  return phase;
}

TEST(Ranks, EveryRankHasItsPlaceAndItsFile) {
  FakeRun run("ranks_good");
  add_ranks(run, "print_rank", 3);
  run.go();
  EXPECT_EQ(run.end_of("ddp"), "COMPLETED");
  EXPECT_FALSE(run.has("phases/ddp/g01.jsonl"));
  std::string port;
  for (int rank = 0; rank < 3; ++rank) {
    const std::string stem = "phases/ddp/g01.r" + std::to_string(rank);
    EXPECT_TRUE(run.has(stem + ".jsonl"));
    const std::string output = read_bytes(run.file(stem + ".out"));
    EXPECT_THAT(output, HasSubstr("RANK=" + std::to_string(rank) + "\n"));
    EXPECT_THAT(output, HasSubstr("WORLD_SIZE=3\nMASTER_ADDR=127.0.0.1\n"));
    const std::string line = output.substr(output.find("MASTER_PORT="));
    EXPECT_TRUE(rank == 0 || line == port) << line;
    port = line;
  }
}

TEST(Ranks, OneRankIsAGroupAsAnyOther) {
  FakeRun run("ranks_one");
  add_ranks(run, "print_rank", 1);
  run.go();
  EXPECT_EQ(run.end_of("ddp"), "COMPLETED");
  EXPECT_TRUE(run.has("phases/ddp/g01.jsonl"));
  EXPECT_THAT(read_bytes(run.file("phases/ddp/g01.out")), HasSubstr("RANK=unset"));
}

TEST(Ranks, ADeadRankIsNamedAndTheOthersAreStopped) {
  FakeRun run("ranks_killed");
  auto& phase = add_ranks(run, "rank1_killed", 2);
  phase.retries = 0;
  const auto start = std::chrono::steady_clock::now();
  run.go();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 10);
  EXPECT_EQ(run.end_of("ddp"), "FAILED SIGNAL");
  const GroupOutcome outcome = run.record("ddp").groups.at(0);
  EXPECT_THAT(outcome.reason, HasSubstr("rank 1 of 2: ended by SIGKILL"));
  ASSERT_EQ(outcome.notes.size(), 2u);
  EXPECT_EQ(outcome.notes[0], "rank 0: INTERRUPTED, last collective: unknown, last stage: unknown");
  EXPECT_EQ(outcome.notes[1], "rank 1: SIGNAL, last collective: unknown, last stage: unknown");
  EXPECT_TRUE(outcome.left.empty());
}

TEST(Ranks, HangingRanksAreNamed) {
  FakeRun run("ranks_hang");
  run.hangs_soon();
  add_ranks(run, "hang", 2);
  run.go();
  EXPECT_EQ(run.end_of("ddp"), "FAILED HANG");
  EXPECT_THAT(run.record("ddp").groups.at(0).reason, HasSubstr(" of 2: no progress for "));
}

TEST(Ranks, LastCollectivesAndStagesStandBesideTheFailure) {
  FakeRun run("ranks_notes");
  run.go();  // makes the folder
  const auto notes = run.root / "notes";
  std::filesystem::create_directories(notes);
  write_bytes(notes / "last_collective.rank0.txt", "step 4: allreduce of bucket 2, begun   \n");
  WorkerSpec spec{.group = "g",
                  .argv = {(run.root / "bin" / "no_such").string()},
                  .env = {},
                  .marker = "m",
                  .input = "",
                  .result = "",
                  .out = run.root / "o",
                  .err = run.root / "e",
                  .autopsy = "",
                  .want = {}};
  const GroupOutcome outcome = run_ranks({spec}, run.options.limits, {}, notes);
  EXPECT_EQ(outcome.cause, "NOT_STARTED");
  EXPECT_EQ(
      outcome.notes.at(0),
      "rank 0: NOT_STARTED, last collective: step 4: allreduce of bucket 2, begun, last stage: "
      "unknown");
}

}  // namespace
}  // namespace harness

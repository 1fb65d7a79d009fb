#include "harness/engine/ranks/srun_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "harness/engine/testing.h"
#include "harness/schema/error.h"

namespace harness {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> places(const std::vector<std::string>& nodes, int world) {
  std::vector<std::string> texts;
  for (int rank = 0; rank < world; ++rank) {
    const RankNode place = place_of_rank(nodes, rank, world);
    EXPECT_EQ(place.first_node, nodes.front());
    texts.push_back(place.node + std::to_string(place.local_rank));
  }
  return texts;
}

TEST(SrunRanks, NeighboursShareANode) {
  EXPECT_THAT(places({"a", "b"}, 4), ElementsAre("a0", "a1", "b0", "b1"));
  EXPECT_THAT(places({"a", "b"}, 3), ElementsAre("a0", "a1", "b0"));
  EXPECT_THAT(places({"a", "b", "c"}, 2), ElementsAre("a0", "b0"));
  EXPECT_THAT(places({"a"}, 2), ElementsAre("a0", "a1"));
}

TEST(SrunRanks, TheCommandNamesTheNodeAndOpensTheResult) {
  setenv("SLURM_JOB_ID", "17", 1);
  WorkerSpec spec;
  spec.argv = {"/bin/nsa-train", "--worker"};
  spec.result = "/run/g01.r1.jsonl";
  spec.env = {{"MASTER_ADDR", "127.0.0.1"}, {"RANK", "1"}};
  start_by_srun(spec, {"b", "a", 3});
  unsetenv("SLURM_JOB_ID");
  EXPECT_THAT(spec.argv, testing::Contains("--nodelist=b"));
  EXPECT_THAT(std::vector(spec.argv.end() - 3, spec.argv.end()),
              ElementsAre("/run/g01.r1.jsonl", "/bin/nsa-train", "--worker"));
  EXPECT_EQ(spec.env["MASTER_ADDR"], "a");
  EXPECT_EQ(spec.env["LOCAL_RANK"], "3");
  EXPECT_EQ(spec.env["RANK"], "1");
  EXPECT_EQ(spec.env["SLURM_JOB_ID"], "17");
}

TEST(SrunRanks, OutsideOfAnAllocationNothingIsStarted) {
  FakeRun run("srun_outside");
  auto& phase = run.add("ddp", "normal");
  phase.program = "nsa-train";
  phase.launcher = "srun";
  phase.args["ranks"] = 2;
  try {
    run.go();
    FAIL() << run.end_of("ddp");
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("phase ddp is to be started by srun"));
  }
}

}  // namespace
}  // namespace harness

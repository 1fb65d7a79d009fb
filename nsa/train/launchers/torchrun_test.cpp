// nsa-train started by torchrun, the launcher of the LibTorch wheel: ranks over Gloo on one node,
// on two nodes that meet by c10d, and started again after one of them was killed.
#include "nsa/train/checkpoint/state_testing.h"
#include "nsa/train/ranks_testing.h"

namespace nsa::train {
namespace {

using ::testing::AllOf;

class TorchrunTest : public RanksTest {
 protected:
  void SetUp() override {
    RanksTest::SetUp();
    ASSERT_TRUE(fs::exists(torchrun_)) << "tools/setup installs it";
  }
  /// torchrun with `options`, which starts `program` with `args` in every rank; errors in `log`.
  std::string torchrun(const std::string& options, const std::string& started,
                       const std::string& args, const std::string& log = "err") const {
    return "NSA_NVTX=0 OMP_NUM_THREADS=1 " + torchrun_ + " --no-python " + options + " " + started +
           " --data synthetic --warmup 2 --model small.json " + args + " > " + log + " 2>&1 ";
  }
  /// Six rows a step in one process, as result `one`.
  Curve of_one_process() {
    EXPECT_EQ(shell(program("nsa-train") + " --data synthetic --warmup 2 --model small.json " +
                    rows(1) + " --result one 2> err"),
              0)
        << slurp("err");
    return curve("one");
  }
  static std::string rows(int64_t ranks) {
    return "--dtype fp64 --steps 4 --batch " + std::to_string(6 / ranks) + " --ranks " +
           std::to_string(ranks);
  }

 private:
  const std::string torchrun_ = base::venv_dir() + "/bin/torchrun";
};

TEST_F(TorchrunTest, RanksOfOneNodeTrainAsOneProcess) {
  const Curve one = of_one_process();
  for (const int64_t ranks : {2, 3}) {
    const Port port;
    const std::string name = "of" + std::to_string(ranks);
    ASSERT_EQ(shell(torchrun(
                  "--nproc-per-node " + std::to_string(ranks) + " --master-port " + port.text(),
                  program("nsa-train"), rows(ranks) + " --shard full --result " + name)),
              0)
        << slurp("err");
    expect_near(one, curve(name), 1e-9);
    for (int64_t rank = 1; rank < ranks; ++rank)
      EXPECT_EQ(curve(name), curve(name + ".rank" + std::to_string(rank)));
  }
}

/// One torchrun a node, as on two machines: two ranks on the first, one on the second.
TEST_F(TorchrunTest, NodesMeetByC10d) {
  const Curve one = of_one_process();
  const Port port;
  const auto node = [&](const std::string& ranks, const std::string& log) {
    return torchrun("--nnodes 2 --nproc-per-node " + ranks +
                        " --local-addr 127.0.0.1 --rdzv-backend c10d --rdzv-id job "
                        "--rdzv-endpoint 127.0.0.1:" +
                        port.text(),
                    program("nsa-train"), rows(3) + " --result nodes", log);
  };
  ASSERT_EQ(shell(node("2", "err0") + "& p=$!; " + node("1", "err1") +
                  "; b=$?; wait $p; exit $(($? + b))"),
            0)
      << slurp("err0") << slurp("err1");
  expect_near(one, curve("nodes"), 1e-9);
  EXPECT_EQ(curve("nodes"), curve("nodes.rank2"));
}

/// torchrun starts all ranks again when one has died; they go on from their last checkpoint.
TEST_F(TorchrunTest, AKilledRankIsNamedAndAllAreStartedAgain) {
  std::ofstream(dir_ / "rank.sh") << "echo $$ > pid.$RANK.$TORCHELASTIC_RESTART_COUNT\nexec " +
                                         program("nsa-train") + " \"$@\"\n";
  const auto args = [](const std::string& folder) {
    return "--batch 2 --steps 12 --shard full --checkpoint-every 1 --resume --checkpoints " +
           folder + " --result " + folder + ".jsonl";
  };
  ASSERT_EQ(two_ranks("--model small.json " + args("whole")), 0) << slurp("err0");
  const Port port;
  ASSERT_EQ(shell(torchrun("--nproc-per-node 2 --max-restarts 1 --master-port " + port.text(),
                           "sh rank.sh", args("killed"), "killed.log") +
                  "& p=$!; " + wait_for("\"at\":\"step\".*\"step\":4,", "killed.jsonl", "p") +
                  "kill -KILL $(cat pid.1.0); wait $p"),
            0)
      << slurp("killed.log");
  EXPECT_THAT(slurp("killed.log"),
              AllOf(HasSubstr("RANK_FAULT: rank 0, step "), HasSubstr("resumed behind step ")));
  EXPECT_TRUE(fs::exists(dir_ / "pid.0.1")) << "rank 0 was started again, too";
  expect_same_state(dir_ / "whole", dir_ / "killed", 12);
}

}  // namespace
}  // namespace nsa::train

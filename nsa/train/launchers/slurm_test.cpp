// nsa-train started by srun, on a Slurm with three nodes on this machine.
#include "nsa/train/checkpoint/state_testing.h"
#include "nsa/train/launchers/slurm_cluster.h"

namespace nsa::train {
namespace {

using ::testing::AllOf;

class SlurmTest : public RanksTest {
 protected:
  void SetUp() override {
    RanksTest::SetUp();
    if (const std::string what = SlurmCluster::missing(); !what.empty()) GTEST_SKIP() << what;
    try {
      cluster_ = std::make_unique<SlurmCluster>(dir_ / "slurm", 3);
    } catch (const std::runtime_error& error) {
      FAIL() << error.what();
    }
  }
  void TearDown() override {
    cluster_.reset();
    RanksTest::TearDown();
  }
  int slurm(const std::string& command) {
    return shell(cluster_->environment() + "export NSA_NVTX=0; " + command);
  }
  std::string train(const std::string& args) {
    return program("nsa-train") + " --data synthetic --warmup 2 --model small.json " + args;
  }

  std::unique_ptr<SlurmCluster> cluster_;
};

/// One task a node; then two tasks on one node and one on another, with sharded parameters.
TEST_F(SlurmTest, TasksOfSeveralNodesTrainAsOneProcess) {
  const std::string rest = " --dtype fp64 --steps 4 --batch ";
  ASSERT_EQ(shell(train("--result one" + rest + "6 2> err")), 0) << slurp("err");
  ASSERT_EQ(slurm("srun --nodes 3 --ntasks 3 " + train("--ranks 3 --result three" + rest + "2") +
                  " 2> err"),
            0)
      << slurp("err") << cluster_->logs();
  expect_near(curve("one"), curve("three"), 1e-9);
  EXPECT_EQ(curve("three"), curve("three.rank2"));
  ASSERT_EQ(
      slurm("srun --nodes 2 --ntasks 3 sh -c 'echo $SLURM_LOCALID >> local; exec \"$@\"' task " +
            train("--ranks 3 --shard full --result shards" + rest + "2") + " 2> err"),
      0)
      << slurp("err") << cluster_->logs();
  expect_near(curve("one"), curve("shards"), 1e-9);
  EXPECT_EQ(curve("shards"), curve("shards.rank2"));
  ASSERT_EQ(shell("test \"$(sort local | tr '\\n' ' ')\" = '0 0 1 '"), 0) << slurp("local");
}

/// A task of a batch job is killed: the other one names it and ends, the job is queued again, and
/// its second start goes on from the last checkpoint.
TEST_F(SlurmTest, AKilledTaskIsNamedAndTheJobGoesOnWhenItIsRequeued) {
  const std::string args =
      "--ranks 2 --batch 2 --steps 12 --shard full --checkpoint-every 1 --resume --checkpoints ";
  ASSERT_EQ(slurm("srun --nodes 2 --ntasks 2 " + train(args + "whole --result w") + " 2> err"), 0)
      << slurp("err") << cluster_->logs();
  std::ofstream(dir_ / "job.sh")
      << "#!/bin/sh\nsrun sh task.sh || scontrol requeue $SLURM_JOB_ID\n";
  std::ofstream(dir_ / "task.sh")
      << "echo $$ > pid.$SLURM_PROCID.${SLURM_RESTART_COUNT:-0}\nexec " +
             train(args + "killed --result k") + "\n";
  ASSERT_EQ(slurm("sbatch --parsable --nodes 2 --ntasks 2 --requeue --open-mode append --output "
                  "job.log job.sh "
                  "> id"),
            0)
      << cluster_->logs();
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(
      shell("for i in $(seq 600); do grep -qs '\"at\":\"step\".*\"step\":4,' k && break; "
            "sleep 0.05; done; kill -KILL $(cat pid.1.0); "
            "for i in $(seq 200); do grep -qs RANK_FAULT job.log && exit 0; sleep 0.05; done; "
            "exit 1"),
      0)
      << slurp("job.log") << cluster_->logs();
  const std::chrono::duration<double> named = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(named.count(), 30) << "start included";
  EXPECT_TRUE(
      cluster_->becomes_true("scontrol show job $(cat ../id) | grep -q JobState=COMPLETED", 90))
      << slurp("job.log") << cluster_->logs();
  EXPECT_THAT(slurp("job.log"),
              AllOf(HasSubstr("RANK_FAULT: rank 0, step "), HasSubstr("resumed behind step ")));
  EXPECT_TRUE(fs::exists(dir_ / "pid.0.1")) << "the job was started twice";
  expect_same_state(dir_ / "whole", dir_ / "killed", 12);
}

}  // namespace
}  // namespace nsa::train

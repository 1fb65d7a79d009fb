// nsa-train started by srun, on a Slurm with three nodes on this machine.
#include "nsa/train/checkpoint/state_testing.h"
#include "nsa/train/launchers/slurm_cluster.h"

namespace nsa::train {
namespace {

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

/// nsa-validate inside an allocation: the engine has srun start a rank on each node.
class SlurmValidateTest : public SlurmTest {
 protected:
  void SetUp() override {
    SlurmTest::SetUp();
    std::ofstream(dir_ / "book.json") << R"({
  "schema": "nsa-runbook/1", "name": "book", "title": "Ranks by srun", "scope": "the launcher",
  "phases": [{"id": "train", "run": "nsa-train", "launcher": "srun", "timeout_s": 120,
    "args": {"model": "tiny_cpu", "data": "synthetic", "steps": 3, "warmup": 1, "batch": 1, "ranks": 2},
    "criteria": [
      {"id": "C-train.steps", "text": "all steps were done", "metric": "train.steps.done_count", "op": "==",
       "value": 3, "unit": "count", "severity": "blocker", "evidence": "record"},
      {"id": "C-train.ranks", "text": "2 ranks trained together", "metric": "train.ddp.ranks_count", "op": "==",
       "value": 2, "unit": "count", "severity": "blocker", "evidence": "record"}]}]})";
  }
  std::string validate(const std::string& out, const std::string& more = "") {
    return program("nsa-validate") + " --runbook ./book.json --out " + out + " " + more + " > " +
           out + ".log 2>&1";
  }
  json phase(const std::string& out) {
    const json results = json::parse(slurp(out + "/results.json"), nullptr, false);
    return results.is_discarded() ? json{{"missing", slurp(out + ".log")}} : results["phases"][0];
  }
};

TEST_F(SlurmValidateTest, SrunStartsTheRanksOfAPhaseOnTheNodes) {
  ASSERT_EQ(slurm("salloc --quiet --nodes 2 --ntasks 2 " + validate("run")), 0)
      << slurp("run.log") << phase("run") << cluster_->logs();
  for (const char* node : {"slurm/slurmd.127.0.0.1.log", "slurm/slurmd.127.0.0.2.log"})
    EXPECT_THAT(slurp(node), HasSubstr("launch task StepId=")) << node;
}

TEST_F(SlurmValidateTest, OutsideOfAnAllocationThePhaseIsDeferred) {
  EXPECT_EQ(slurm(validate("run")), 5) << slurp("run.log");
  EXPECT_EQ(phase("run")["status"], "DEFERRED");
  EXPECT_EQ(phase("run")["cause"], "NO_ALLOCATION");
}

TEST_F(SlurmValidateTest, ARankThatIsKilledFailsThePhaseAndLeavesNothing) {
  ASSERT_NE(
      slurm("(for i in $(seq 600); do grep -qs '\"at\":\"step\"' run/phases/train/g01.r1.jsonl && "
            "kill -KILL $(sed -n 's/.*\"pid\":\\([0-9]*\\).*/\\1/p;1q' "
            "run/phases/train/g01.r1.jsonl) && break; sleep .1; done) > killed.log 2>&1 & "
            "salloc --quiet --nodes 2 --ntasks 2 " +
            validate("run", "--set train.steps=1000000")),
      0);
  EXPECT_EQ(phase("run")["status"], "FAILED") << phase("run");
  EXPECT_THAT(phase("run")["reason"].get<std::string>(), HasSubstr("rank 1 of 2"));
  EXPECT_TRUE(cluster_->becomes_true("test -z \"$(squeue --steps -h)\"", 15));
}

/// A batch job of two ranks, which is queued again when one is lost.
class SlurmJobTest : public SlurmTest {
 protected:
  void SetUp() override {
    SlurmTest::SetUp();
    if (HasFatalFailure()) return;
    ASSERT_EQ(two_ranks("--model small.json " + options("whole")), 0) << slurp("err0");
    std::ofstream(dir_ / "job.sh")
        << "#!/bin/sh\nsrun sh task.sh || scontrol requeue $SLURM_JOB_ID\n";
    std::ofstream(dir_ / "task.sh")
        << "echo $$ > pid.$SLURM_PROCID.${SLURM_RESTART_COUNT:-0}\n"
        << "echo $SLURMD_NODENAME > node.$SLURM_PROCID.${SLURM_RESTART_COUNT:-0}\n"
        << "exec " + train(options("lost")) + "\n";
    ASSERT_EQ(slurm("sbatch --parsable --nodes 2 --ntasks 2 --requeue --open-mode append "
                    "--output job.log job.sh > id"),
              0)
        << cluster_->logs();
    ASSERT_TRUE(
        cluster_->becomes_true("grep -qs '\"at\":\"step\".*\"step\":10,' ../lost.jsonl", 60))
        << slurp("job.log") << cluster_->logs();
  }
  static std::string options(const std::string& folder) {
    return "--ranks 2 --batch 2 --steps 80 --shard full --checkpoint-every 5 --resume "
           "--checkpoints " +
           folder + " --result " + folder + ".jsonl";
  }
  static constexpr const char* kByConnection = "RANK_FAULT: rank 0, step ";
  /// What a node without power leaves.
  static constexpr const char* kBySilence = "HANG: rank 1 of 2 gives no sign of life for ";
  /// The other rank names the loss within 10 s; the job's second start goes on to the same end.
  void expect_named_and_gone_on(const std::string& named) {
    EXPECT_TRUE(cluster_->becomes_true("grep -qE '" + named + "' ../job.log", 10))
        << slurp("job.log");
    EXPECT_TRUE(
        cluster_->becomes_true("scontrol show job $(cat ../id) | grep -q JobState=COMPLETED", 120))
        << slurp("job.log") << cluster_->logs();
    EXPECT_THAT(slurp("job.log"), HasSubstr("resumed behind step "));
    EXPECT_TRUE(fs::exists(dir_ / "pid.0.1")) << "the job was started twice";
    expect_same_state(dir_ / "whole", dir_ / "lost", 80);
  }
  pid_t task() { return std::stoi(slurp("pid.1.0")); }
};

TEST_F(SlurmJobTest, AKilledTaskIsNamedAndTheJobGoesOn) {
  kill(task(), SIGKILL);
  expect_named_and_gone_on(kByConnection);
  EXPECT_EQ(slurp("node.1.1"), "127.0.0.2\n");
}

TEST_F(SlurmJobTest, ALostNodeIsNamedAndTheJobGoesOnOnAnother) {
  cluster_->lose_node(2, task());
  expect_named_and_gone_on(std::string(kByConnection) + "|" + kBySilence);
  EXPECT_EQ(slurp("node.1.1"), "127.0.0.3\n");
}

}  // namespace
}  // namespace nsa::train

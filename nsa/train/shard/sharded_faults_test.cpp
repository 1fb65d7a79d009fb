// Faults of one rank while parameters are sharded: named in time, the others end, and the run goes
// on. Ranks are processes over Gloo. A killed rank: sharded_ranks_test; checkpoints:
// sharded_resume_test.
#include <chrono>

#include "nsa/train/checkpoint/checkpoint_store.h"
#include "nsa/train/checkpoint/state_testing.h"
#include "nsa/train/ranks_testing.h"

namespace nsa::train {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;

constexpr double kNamedWithinS = 10;

class ShardedFaultsTest : public RanksTest {
 protected:
  static std::string options(const std::string& folder, const std::string& more) {
    const std::string model =
        more.find("--model") == std::string::npos ? "--model small.json " : "";
    return model +
           "--shard full --batch 2 --steps 12 --checkpoint-every 1 --resume "
           "--checkpoints " +
           folder + " --result " + folder + ".jsonl " + more;
  }
  /// Shell text that writes the clock to a file.
  static std::string note_time(const std::string& file) { return "date +%s.%N > " + file + "; "; }
  double seconds_between(const std::string& a, const std::string& b) {
    return std::stod(slurp(b)) - std::stod(slurp(a));
  }
};

TEST_F(ShardedFaultsTest, AStoppedRankIsNamedAndTheRunGoesOn) {
  ASSERT_EQ(two_ranks(options("whole", "")), 0) << slurp("err0");
  const Port port;
  const std::string all = options("stopped", "--rank-timeout 4 --out o");
  const int status =
      shell(rank(0, 2, port, all) + rank(1, 2, port, all) +
            wait_for("\"at\":\"step\".*\"step\":4,", "stopped.jsonl", "p0") + "kill -STOP $p1; " +
            note_time("lost") + "wait $p0; s=$?; " + note_time("ended") +
            "cp o/last_collective.rank* .; kill -KILL $p1; exit $s");
  EXPECT_THAT(status, AnyOf(1, 3));
  EXPECT_LT(seconds_between("lost", "ended"), kNamedWithinS);
  EXPECT_THAT(slurp("err0"),
              AnyOf(HasSubstr("RANK_FAULT: rank 0, step "), HasSubstr("HANG: rank 0 of 2")));
  EXPECT_THAT(slurp("last_collective.rank0.txt"),
              AllOf(HasSubstr("step "), AnyOf(HasSubstr("begun"), HasSubstr("ended"))));
  ASSERT_EQ(two_ranks(options("stopped", "")), 0) << slurp("err0");
  EXPECT_THAT(slurp("err0"), HasSubstr("resumed behind step"));
  expect_same_state(dir_ / "whole", dir_ / "stopped", 12);
}

/// Slower than the others is not lost: a rank that stands still for less than the timeout.
TEST_F(ShardedFaultsTest, ASlowRankIsWaitedFor) {
  ASSERT_EQ(two_ranks(options("whole", "")), 0) << slurp("err0");
  const Port port;
  const std::string all = options("slow", "--rank-timeout 20");
  EXPECT_EQ(shell(rank(0, 2, port, all) + rank(1, 2, port, all) +
                  wait_for("\"at\":\"step\".*\"step\":4,", "slow.jsonl", "p0") +
                  "kill -STOP $p1; sleep 2; kill -CONT $p1; wait $p0; a=$?; wait $p1; "
                  "exit $((a + $?))"),
            0)
      << slurp("err0");
  expect_same_state(dir_ / "whole", dir_ / "slow", 12);
}

/// 6.9 MiB of parameters, divided by two: a step takes more than 12 MiB.
TEST_F(ShardedFaultsTest, ARankOutOfMemoryIsNamedAndTheOtherEnds) {
  const std::string wide = "--model wide.json ";
  const Port port;
  EXPECT_EQ(shell(rank(0, 2, port, options("c", wide)) +
                  rank(1, 2, port, options("c", wide + "--memory-limit 12")) + "wait $p1; b=$?; " +
                  note_time("lost") + "wait $p0; a=$?; " + note_time("ended") + "exit $((a + b))"),
            2)
      << slurp("err0") << slurp("err1");
  EXPECT_LT(seconds_between("lost", "ended"), kNamedWithinS);
  EXPECT_THAT(slurp("err1"), AllOf(HasSubstr("OOM: predicted: "), HasSubstr("measured: ")));
  EXPECT_THAT(slurp("err0"), HasSubstr("RANK_FAULT: rank 0, "));
  const auto findings = of_type(lines_of("c.jsonl"), "finding");
  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings[0]["code"], "RANK_FAULT");
  EXPECT_TRUE(checkpoint_steps(dir_ / "c").empty()) << "no step was done";
  ASSERT_EQ(two_ranks(options("c", wide)), 0) << slurp("err0");
}

}  // namespace
}  // namespace nsa::train

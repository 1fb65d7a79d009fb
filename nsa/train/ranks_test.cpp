// Several ranks as processes over Gloo: the same training, buckets as asked for, faults named.
#include <chrono>
#include <cmath>

#include "nsa/train/checkpoint/checkpoint_store.h"
#include "nsa/train/checkpoint/state_testing.h"
#include "nsa/train/ranks_testing.h"

namespace nsa::train {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;

TEST_F(RanksTest, TwoRanksTrainAsOneWithTwiceTheBatch) {
  const std::string rest = " --model small.json --dtype fp64 --steps 6 --accum 2";
  ASSERT_EQ(shell(program("nsa-train") + " --data synthetic --warmup 2 --batch 4 --result one" +
                  rest + " 2> err"),
            0)
      << slurp("err");
  ASSERT_EQ(two_ranks("--batch 2 --result two" + rest), 0) << slurp("err0") << slurp("err1");
  expect_near(curve("one"), curve("two"), 1e-9);
  ASSERT_EQ(two_ranks("--batch 2 --activation-checkpointing --result again" + rest), 0)
      << slurp("err0");
  EXPECT_EQ(curve("again"), curve("two"));
  EXPECT_EQ(curve("two"), curve("two.rank1"));
  EXPECT_EQ(of_type(lines_of("two"), "hello").at(0)["world"], 2);
  EXPECT_EQ(of_type(lines_of("two.rank1"), "hello").at(0)["rank"], 1);
  EXPECT_EQ(check("two", "lr_trace")["ok"], true);
  EXPECT_TRUE(of_type(lines_of("two.rank1"), "metric").empty());
  EXPECT_EQ(lines_of("two.rank1").back()["type"], "done");
}

TEST_F(RanksTest, ShardedOptimizerHasTheSameBits) {
  const std::string rest = " --model small.json --batch 2 --steps 6 --checkpoints ";
  ASSERT_EQ(two_ranks("--result whole" + rest + "w"), 0) << slurp("err0");
  ASSERT_EQ(two_ranks("--result parts --shard optimizer" + rest + "p"), 0) << slurp("err0");
  EXPECT_EQ(curve("whole"), curve("parts"));
  expect_same_state(dir_ / "w", dir_ / "p", 6);
}

TEST_F(RanksTest, BucketsAreThoseAskedFor) {
  const std::string args = "--model wide.json --batch 1 --steps 3 --result r";
  for (const int cap : {1, 2}) {
    fs::remove(dir_ / "r");
    ASSERT_EQ(two_ranks(args, "NSA_DDP_BUCKET_MB=" + std::to_string(cap)), 0) << slurp("err0");
    const json found = check("r", "bucket_cap");
    EXPECT_EQ(found["ok"], true) << found;
    const json table = of_type(lines_of("r"), "table").at(1);
    EXPECT_EQ(table["id"], "buckets");
    EXPECT_GE(table["rows"].size(), cap == 1 ? 4u : 3u) << table;
    double sum = 0;
    for (const json& row : table["rows"]) sum += row[1].get<double>();
    EXPECT_NEAR(sum, 6.875, 1e-3) << table;  // all but the norms, which are small
  }
}

TEST_F(RanksTest, CompressionIsCloseAndNotTheSame) {
  const std::string args = "--model small.json --batch 2 --steps 6 --result ";
  ASSERT_EQ(two_ranks(args + "plain"), 0) << slurp("err0");
  ASSERT_EQ(two_ranks(args + "bf16", "NSA_DDP_COMPRESS=bf16"), 0) << slurp("err0");
  expect_near(curve("plain"), curve("bf16"), 0.02);
  EXPECT_NE(curve("plain"), curve("bf16"));
  EXPECT_EQ(curve("bf16"), curve("bf16.rank1"));
}

/// One rank is killed; the other one reports it and ends; both resume and end with the same bits.
TEST_F(RanksTest, AKilledRankIsNamedAndTheRunGoesOn) {
  const std::string args =
      "--model small.json --batch 2 --steps 12 --checkpoint-every 1 --resume --checkpoints ";
  ASSERT_EQ(two_ranks(args + "whole --result w"), 0) << slurp("err0");
  const Port port;
  const auto start = std::chrono::steady_clock::now();
  const std::string killed = args + "killed --result k";
  EXPECT_EQ(shell(rank(0, 2, port, killed) + rank(1, 2, port, killed) +
                  wait_for("\"at\":\"step\".*\"step\":4,", "k", "p0") + "kill -KILL $p1; wait $p0"),
            1);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 10);
  EXPECT_THAT(slurp("err0"),
              AllOf(HasSubstr("RANK_FAULT: rank 0, step "),
                    AnyOf(HasSubstr("allreduce"), HasSubstr("none")), HasSubstr("failed: ")));
  EXPECT_EQ(of_type(lines_of("k"), "finding").at(0)["code"], "RANK_FAULT");
  EXPECT_EQ(lines_of("k").back()["type"], "done");
  ASSERT_EQ(two_ranks(args + "killed --result again"), 0) << slurp("err0");
  EXPECT_THAT(slurp("err0"), HasSubstr("resumed behind step"));
  expect_same_state(dir_ / "whole", dir_ / "killed", 12);
}

TEST_F(RanksTest, AHangingRankIsNamed) {
  const Port port;
  const std::string args =
      "--model small.json --batch 2 --steps 100000 --rank-timeout 4 --out o --result h";
  const auto start = std::chrono::steady_clock::now();
  const int status = shell(rank(0, 2, port, args) + rank(1, 2, port, args) +
                           wait_for("\"at\":\"step\".*\"step\":4,", "h", "p0") +
                           "kill -STOP $p1; wait $p0; s=$?; cp o/last_collective.rank* .; "
                           "kill -KILL $p1; exit $s");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 12);
  EXPECT_THAT(status, AnyOf(1, 3));
  EXPECT_THAT(slurp("err0"),
              AllOf(AnyOf(HasSubstr("RANK_FAULT: rank 0, step"), HasSubstr("HANG: rank 0 of 2")),
                    HasSubstr("allreduce")));
  EXPECT_THAT(slurp("last_collective.rank0.txt"), HasSubstr("begun"));
  EXPECT_THAT(slurp("last_collective.rank1.txt"), HasSubstr("step "));
}

TEST_F(RanksTest, TerminatingOneRankStopsAllAfterTheSameStep) {
  const Port port;
  const std::string args = "--model small.json --batch 2 --steps 100000 --checkpoints c --result t";
  EXPECT_EQ(shell(rank(0, 2, port, args) + rank(1, 2, port, args) +
                  wait_for("\"at\":\"step\"", "t", "p0") +
                  "kill -TERM $p1; wait $p0; a=$?; wait $p1; test $? = 143 -a $a = 1"),
            0)
      << slurp("err0");
  EXPECT_THAT(slurp("err0"), HasSubstr("stopped by another rank after step"));
  EXPECT_EQ(curve("t").size(), curve("t.rank1").size());
  EXPECT_EQ(checkpoint_steps(dir_ / "c").size(), 1u);
}

TEST_F(RanksTest, StartsThatCannotWorkAreNamed) {
  const std::string run = program("nsa-train") + " --model small.json --data synthetic --steps 1 ";
  EXPECT_EQ(shell("RANK=0 WORLD_SIZE=0 " + run + "2> err"), 2);
  EXPECT_THAT(slurp("err"), HasSubstr("WORLD_SIZE must be a number in 1..2147483647, got \"0\""));
  EXPECT_EQ(shell("RANK=2 WORLD_SIZE=2 " + run + "2> err"), 2);
  EXPECT_THAT(slurp("err"), HasSubstr("RANK must be a number in 0..1, got \"2\""));
  EXPECT_EQ(shell(run + "--ranks 2 2> err"), 1);
  EXPECT_THAT(slurp("err"), HasSubstr("RANK_FAULT: the run is to have 2 ranks, it was started "
                                      "with 1 (one process)"));
  EXPECT_THAT(slurp("err"), ::testing::Not(HasSubstr("RANK_FAULT: RANK_FAULT")));
  EXPECT_EQ(shell("NSA_DDP_BUCKET_MB=50 " + run + "2> err"), 2);
  EXPECT_THAT(slurp("err"), HasSubstr("NSA_DDP_BUCKET_MB is ignored by nsa-train with one rank"));
  const Port taken(/*held=*/true);
  EXPECT_EQ(shell(rank(0, 2, taken, "--model small.json --rank-timeout 2") + "wait $p0"), 1);
  EXPECT_THAT(slurp("err0"), AllOf(HasSubstr(":" + taken.text()), HasSubstr("the port is in use")));
  const Port alone;
  EXPECT_EQ(shell(rank(0, 2, alone, "--model small.json --rank-timeout 1") + "wait $p0"), 1);
  EXPECT_THAT(slurp("err0"), HasSubstr("not all of the 2 ranks came to 127.0.0.1:"));
  EXPECT_EQ(shell(rank(1, 2, alone, "--model small.json --rank-timeout 1") + "wait $p1"), 1);
  EXPECT_THAT(slurp("err1"), HasSubstr("rank 1 of 2 cannot reach 127.0.0.1:" + alone.text()));
}

}  // namespace
}  // namespace nsa::train

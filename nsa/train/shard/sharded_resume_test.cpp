// Sharded checkpoints, written by ranks that are processes over Gloo: continued with the same bits,
// with other numbers of ranks, after a kill; what cannot be continued is named.
#include "nsa/train/checkpoint/checkpoint_store.h"
#include "nsa/train/checkpoint/state_testing.h"
#include "nsa/train/ranks_testing.h"

namespace nsa::train {
namespace {

using ::testing::AllOf;

class ShardedResumeTest : public RanksTest {
 protected:
  static constexpr int kSteps = 6;

  /// 24 rows a step on `world` ranks, with checkpoints in FOLDER and result FOLDER.jsonl.
  static std::string options(int64_t world, const std::string& folder, const std::string& more) {
    return "--shard full --model small.json --dtype fp64 --steps " + std::to_string(kSteps) +
           " --batch " + std::to_string(24 / world) + " --checkpoints " + folder + " --result " +
           folder + ".jsonl " + more;
  }
  int train(int64_t world, const std::string& folder, const std::string& more = "") {
    const std::string all = options(world, folder, more);
    if (world > 1) return all_ranks(world, all);
    return shell(program("nsa-train") + " --data synthetic --warmup 2 " + all + " 2> err0");
  }
  void copy(const std::string& from, const std::string& to) {
    fs::remove_all(dir_ / to);
    fs::copy(dir_ / from, dir_ / to, fs::copy_options::recursive);
  }
  fs::path folder_of(const std::string& name, int64_t step) {
    return sharded_checkpoint_path(dir_ / name, step);
  }
  /// Loss and gradient norm of all steps, from the trace of the last checkpoint.
  Curve losses(const std::string& folder) {
    const auto trace = state_at(dir_ / folder, kSteps).at("trace");
    const std::vector<double> values = tensor_file::to_doubles(trace);
    const auto width = static_cast<size_t>(trace.shape[1]);
    Curve curve;
    for (size_t row = 0; row < values.size(); row += width)
      curve.emplace_back(values[row + 2], values[row + 3]);
    EXPECT_EQ(curve.size(), static_cast<size_t>(kSteps));
    return curve;
  }
};

TEST_F(ShardedResumeTest, TheSameWorldEndsWithTheSameBits) {
  ASSERT_EQ(train(3, "whole"), 0) << slurp("err0");
  ASSERT_EQ(train(3, "parts", "--slice-steps 4"), 0) << slurp("err0");
  ASSERT_EQ(train(3, "parts", "--resume"), 0) << slurp("err0");
  EXPECT_THAT(slurp("err0"), HasSubstr("resumed behind step 4"));
  expect_same_state(dir_ / "whole", dir_ / "parts", kSteps);
  EXPECT_EQ(losses("whole"), losses("parts"));
  EXPECT_TRUE(fs::exists(folder_of("parts", kSteps) / "rank-00002-of-00003.safetensors"));
}

TEST_F(ShardedResumeTest, AnotherWorldGoesOnWithTheSameLoss) {
  ASSERT_EQ(train(1, "whole", ""), 0) << slurp("err0");
  ASSERT_EQ(train(4, "four", "--slice-steps 3"), 0) << slurp("err0");
  for (const int64_t world : {1, 2, 3, 8}) {
    const std::string name = "of" + std::to_string(world);
    copy("four", name);
    ASSERT_EQ(train(world, name, "--resume"), 0) << slurp("err0");
    EXPECT_THAT(slurp("err0"), HasSubstr("resumed behind step 3"));
    expect_near(losses("whole"), losses(name), 1e-9);
  }
}

/// Rows that come in other micro-batches are the same step, too; whole parameters read shards.
TEST_F(ShardedResumeTest, OtherMicroBatchesAndWholeParametersGoOn) {
  ASSERT_EQ(train(1, "whole"), 0) << slurp("err0");
  ASSERT_EQ(train(2, "two", "--slice-steps 3"), 0) << slurp("err0");
  const std::string rest =
      "--model small.json --dtype fp64 --steps 6 --batch 6 --accum 2 --resume --checkpoints two "
      "--result two.jsonl --shard none";
  ASSERT_EQ(two_ranks(rest), 0) << slurp("err0");
  EXPECT_THAT(slurp("err0"), HasSubstr("resumed behind step 3"));
  expect_near(losses("whole"), losses("two"), 1e-9);
}

/// A rank dies in the middle of its file (by the signal of a limit on file sizes): the checkpoint
/// before is whole and goes on.
TEST_F(ShardedResumeTest, ADeathWhileWritingLosesNothing) {
  const std::string each = "--checkpoint-every 1 --resume";
  ASSERT_EQ(train(2, "whole", each), 0) << slurp("err0");
  ASSERT_EQ(train(2, "killed", each + " --slice-steps 3"), 0) << slurp("err0");
  const Port port;
  const std::string all = options(2, "killed", each);
  EXPECT_EQ(shell(rank(0, 2, port, all) + "ulimit -f 40; " + rank(1, 2, port, all) +
                  "wait $p0; a=$?; wait $p1; test $? = 153 -a $a = 1"),
            0)
      << slurp("err0");
  EXPECT_THAT(slurp("err0"), HasSubstr("RANK_FAULT: rank 0, step 4: "));
  EXPECT_TRUE(fs::exists(dir_ / "killed/step-00000004.part"));
  EXPECT_EQ(checkpoint_steps(dir_ / "killed").back(), 3);
  ASSERT_EQ(train(2, "killed", each), 0) << slurp("err0");
  EXPECT_THAT(slurp("err0"), HasSubstr("resumed behind step 3"));
  EXPECT_FALSE(fs::exists(dir_ / "killed/step-00000004.part"));
  expect_same_state(dir_ / "whole", dir_ / "killed", kSteps);
  EXPECT_EQ(losses("whole"), losses("killed"));
}

TEST_F(ShardedResumeTest, WhatCannotBeContinuedIsNamedAndStaysAsItIs) {
  ASSERT_EQ(train(2, "run", "--slice-steps 2"), 0) << slurp("err0");
  ASSERT_EQ(train(2, "other", "--slice-steps 2 --seed 9"), 0) << slurp("err0");
  const auto refused = [&](const std::string& more, int64_t world = 2) {
    const auto listing = [&] { return shell("ls -lR --full-time run > files"); };
    EXPECT_EQ(listing(), 0);
    const std::string before = slurp("files");
    fs::remove(dir_ / "run.jsonl");
    EXPECT_EQ(train(world, "run", "--resume " + more), world) << "exit status 1 of each rank";
    listing();
    EXPECT_EQ(slurp("files"), before);
    EXPECT_TRUE(of_type(lines_of("run.jsonl"), "beat").empty());
    return slurp("err0") + slurp("err1");
  };
  const fs::path shard = folder_of("run", 2) / "rank-00001-of-00002.safetensors";
  EXPECT_THAT(refused("--lr 0.1"), HasSubstr("is of another run: lr is 0.003 there and 0.1 here"));
  fs::rename(shard, dir_ / "kept");
  EXPECT_THAT(refused(""), AllOf(HasSubstr("rank 0: checkpoint run/step-00000002/"),
                                 HasSubstr("rank-00001-of-00002.safetensors is missing")));
  fs::copy(folder_of("other", 2) / shard.filename(), shard);
  EXPECT_THAT(refused(""),
              AllOf(HasSubstr("rank 1: checkpoint run/step-00000002/rank-00001-of-00002"),
                    HasSubstr("is of another run: seed is 9 there and 1 here")));
  fs::rename(dir_ / "kept", shard);
  EXPECT_EQ(train(2, "run", "--resume"), 0) << slurp("err0");
}

TEST_F(ShardedResumeTest, AFullDiskOfOneRankIsNamed) {
  ASSERT_EQ(train(2, "run", "--slice-steps 2"), 0) << slurp("err0");
  const Port port;
  const std::string all = options(2, "run", "--resume --checkpoint-every 1");
  EXPECT_EQ(shell(rank(0, 2, port, all) + "trap '' XFSZ; ulimit -f 40; " + rank(1, 2, port, all) +
                  "wait $p0; a=$?; wait $p1; exit $((a + $?))"),
            2);
  EXPECT_THAT(slurp("err0"),
              AllOf(HasSubstr("rank 1: checkpoint "), HasSubstr("rank-00001-of-00002"),
                    HasSubstr("the one of step 2 is intact")));
  ASSERT_EQ(train(2, "run", "--resume"), 0) << slurp("err0");
}

}  // namespace
}  // namespace nsa::train

// Parameters, gradients and moments divided among ranks, which are processes over Gloo.
#include <chrono>

#include "nsa/train/checkpoint/checkpoint_store.h"
#include "nsa/train/checkpoint/state_testing.h"
#include "nsa/train/ranks_testing.h"

namespace nsa::train {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;

class ShardedRanksTest : public RanksTest {
 protected:
  void SetUp() override {
    RanksTest::SetUp();
    json tied = json::parse(slurp("small.json"));
    tied["tied_head"] = true;
    std::ofstream(dir_ / "tied.json") << tied;
    json deep = json::parse(slurp("wide.json"));
    deep["num_layers"] = 12;
    std::ofstream(dir_ / "deep.json") << deep;
  }
  /// Twelve rows a micro-batch on `world` ranks, as result NAME.
  int twelve_rows(int64_t world, const std::string& name, const std::string& args) {
    const std::string all =
        "--batch " + std::to_string(12 / world) + " --result " + name + " " + args;
    if (world > 1) return all_ranks(world, all);
    return shell(program("nsa-train") + " --data synthetic --warmup 2 " + all + " 2> err0");
  }
  json table(const std::string& result, const std::string& id) {
    for (const json& line : of_type(lines_of(result), "table"))
      if (line["id"] == id) return line["rows"];
    return nullptr;
  }
};

TEST_F(ShardedRanksTest, TrainAsOneProcessWithAllRows) {
  const auto hold = [&](const std::string& model, const std::vector<int64_t>& worlds) {
    const std::string rest = "--dtype fp64 --steps 4 --accum 2 --model " + model + ".json";
    ASSERT_EQ(twelve_rows(1, model + "1", rest), 0) << slurp("err0");
    for (const int64_t world : worlds) {
      const std::string name = model + std::to_string(world);
      ASSERT_EQ(twelve_rows(world, name, rest + " --shard full"), 0) << slurp("err0");
      expect_near(curve(model + "1"), curve(name), 1e-9);
      EXPECT_EQ(curve(name), curve(name + ".rank1"));
    }
  };
  hold("small", {3, 4});
  hold("tied", {2});
}

/// With two ranks every sum has two terms; only the norm of all gradients is summed in another
/// order, so nothing is clipped here.
TEST_F(ShardedRanksTest, TwoRanksHaveTheBitsOfWholeParameters) {
  const std::string rest = " --model small.json --batch 2 --steps 6 --clip-norm 0 --checkpoints ";
  ASSERT_EQ(two_ranks("--result n.jsonl --shard none" + rest + "n"), 0) << slurp("err0");
  ASSERT_EQ(two_ranks("--result f.jsonl --shard full" + rest + "f"), 0) << slurp("err0");
  ASSERT_EQ(two_ranks("--result a.jsonl --shard full --activation-checkpointing" + rest + "a"), 0)
      << slurp("err0");
  expect_same_state(dir_ / "n", dir_ / "f", 6);
  expect_same_state(dir_ / "n", dir_ / "a", 6);
}

/// bf16 activations: copies of weights in the compute type are made again in the backward pass.
TEST_F(ShardedRanksTest, Bf16ProductsHaveTheBitsOfWholeParameters) {
  const std::string rest =
      " --model small.json --dtype bf16 --batch 2 --steps 4 --clip-norm 0 --checkpoints ";
  ASSERT_EQ(two_ranks("--result n.jsonl --shard none" + rest + "n"), 0) << slurp("err0");
  ASSERT_EQ(two_ranks("--result f.jsonl --shard full" + rest + "f"), 0) << slurp("err0");
  expect_same_state(dir_ / "n", dir_ / "f", 4);
}

TEST_F(ShardedRanksTest, GradientsAsBf16AreCloseAndNotTheSame) {
  const std::string args = "--shard full --model small.json --batch 2 --steps 6 --result ";
  ASSERT_EQ(two_ranks(args + "plain"), 0) << slurp("err0");
  ASSERT_EQ(two_ranks(args + "bf16", "NSA_DDP_COMPRESS=bf16"), 0) << slurp("err0");
  expect_near(curve("plain"), curve("bf16"), 0.02);
  EXPECT_NE(curve("plain"), curve("bf16"));
  EXPECT_EQ(curve("bf16"), curve("bf16.rank1"));
}

/// The model's parameters, moments and gradients are most of the memory here.
TEST_F(ShardedRanksTest, MemoryIsDividedAsPredicted) {
  double whole = 0;
  for (const int64_t world : {2, 4}) {
    const std::string args = " --model deep.json --batch 1 --steps 2 --accum 2 --result ";
    if (world == 2) {
      ASSERT_EQ(all_ranks(world, "--shard none" + args + "n"), 0) << slurp("err0");
      whole = table("n", "memory_by_rank").at(1).at(2);
    }
    ASSERT_EQ(all_ranks(world, "--shard full" + args + "f" + std::to_string(world)), 0)
        << slurp("err0");
    const json rows = table("f" + std::to_string(world), "memory_by_rank");
    ASSERT_EQ(rows.size(), static_cast<size_t>(world));
    for (const json& row : rows) {
      const double predicted = row.at(1), measured = row.at(2);
      EXPECT_TRUE(measured > predicted && measured < 1.6 * predicted) << row;
      EXPECT_TRUE(measured < whole * (world == 2 ? 0.75 : 0.5)) << row << " of " << whole;
    }
  }
}

TEST_F(ShardedRanksTest, TheFirstNonFiniteTensorIsNamed) {
  const std::string args = " --model small.json --batch 2 --steps 9 --lr 1e25 --result ";
  EXPECT_EQ(two_ranks("--shard none" + args + "n"), 2) << slurp("err0");
  EXPECT_EQ(two_ranks("--shard full" + args + "f"), 2) << slurp("err0");
  const json whole = of_type(lines_of("n"), "finding").at(0);
  const json sharded = of_type(lines_of("f"), "finding").at(0);
  EXPECT_EQ(whole["code"], "NON_FINITE");
  EXPECT_EQ(sharded["symptom"], whole["symptom"]);
}

TEST_F(ShardedRanksTest, KeptOutRowsHaveTheLossOfWholeParameters) {
  make_corpus();
  ASSERT_EQ(shell(program("nsa-data") + " --in t.txt --out .data/kept --val-every 2 > out"), 0);
  const std::string args =
      " --data kept --model small.json --batch 2 --steps 4 --warmup 2 --clip-norm 0 "
      "--validate-every 2 --validate-batches 2 --result ";
  const auto losses = [&](const std::string& result) {
    std::vector<double> found;
    for (const json& step : steps_of(lines_of(result)))
      if (step["extra"].contains("validation_loss"))
        found.push_back(step["extra"]["validation_loss"]);
    return found;
  };
  const auto run = [&](const std::string& shard, const std::string& result) {
    const Port port;
    const std::string all = "--shard " + shard + args + result;
    return shell(start(0, 2, port, all) + start(1, 2, port, all) +
                 "wait $p0; a=$?; wait $p1; exit $((a + $?))");
  };
  ASSERT_EQ(run("none", "n"), 0) << slurp("err0");
  ASSERT_EQ(run("full", "f"), 0) << slurp("err0");
  EXPECT_EQ(losses("n").size(), 2u);
  EXPECT_EQ(losses("n"), losses("f"));
}

TEST_F(ShardedRanksTest, AKilledRankIsNamedAndTheRunGoesOn) {
  const std::string args =
      "--shard full --model small.json --batch 2 --steps 12 --checkpoint-every 1 --resume "
      "--checkpoints ";
  ASSERT_EQ(two_ranks(args + "whole --result w"), 0) << slurp("err0");
  const Port port;
  const auto begin = std::chrono::steady_clock::now();
  const std::string killed = args + "killed --result k";
  EXPECT_EQ(shell(rank(0, 2, port, killed) + rank(1, 2, port, killed) +
                  wait_for("\"at\":\"step\".*\"step\":4,", "k", "p0") + "kill -KILL $p1; wait $p0"),
            1);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(took.count(), 10);
  EXPECT_THAT(slurp("err0"), AllOf(HasSubstr("RANK_FAULT: rank 0, step "),
                                   AnyOf(HasSubstr("all-gather of"), HasSubstr("reduce-scatter of"),
                                         HasSubstr("allreduce of"), HasSubstr("none")),
                                   HasSubstr("failed: ")));
  ASSERT_EQ(two_ranks(args + "killed --result again"), 0) << slurp("err0");
  EXPECT_THAT(slurp("err0"), HasSubstr("resumed behind step"));
  expect_same_state(dir_ / "whole", dir_ / "killed", 12);
}

/// Two groups of two ranks, with a copy each: memory of two, rows of four.
TEST_F(ShardedRanksTest, GroupsWithACopyEachTrainAsOneProcess) {
  const std::string rest = "--dtype fp64 --steps 4 --accum 2 --model small.json ";
  const std::string groups = rest + "--shard full --shard-group 2 --checkpoints c";
  ASSERT_EQ(twelve_rows(1, "one", rest), 0) << slurp("err0");
  ASSERT_EQ(twelve_rows(4, "four", groups + " --slice-steps 2"), 0) << slurp("err0");
  const fs::path last = sharded_checkpoint_path(dir_ / "c", 2);
  EXPECT_TRUE(fs::exists(last / "rank-00001-of-00002.safetensors"));
  EXPECT_EQ(std::distance(fs::directory_iterator(last), {}), 4) << "two shards, common, manifest";
  ASSERT_EQ(twelve_rows(4, "again", groups + " --resume"), 0) << slurp("err0");
  Curve all = curve("four");
  for (const auto& step : curve("again")) all.push_back(step);
  expect_near(curve("one"), all, 1e-9);
  EXPECT_EQ(curve("again"), curve("again.rank3"));
  ASSERT_EQ(twelve_rows(2, "two", rest + "--shard full"), 0) << slurp("err0");
  const double of_two = table("two", "memory").back().at(1);
  const double of_groups = table("four", "memory").back().at(1);
  EXPECT_TRUE(of_groups < of_two) << of_groups << ", with fewer rows; of two ranks " << of_two;
}

TEST_F(ShardedRanksTest, OptionsThatCannotWorkAreNamed) {
  EXPECT_EQ(shell(program("nsa-train") + " --shard-group 2 2> err"), 2);
  EXPECT_THAT(slurp("err"), HasSubstr("shard_group must be 0 unless shard is full, got 2"));
  EXPECT_EQ(two_ranks("--shard full --shard-group 3 --model small.json"), 2);
  EXPECT_THAT(slurp("err1"), HasSubstr("shard_group must divide the number of ranks (2), got 3"));
  EXPECT_EQ(shell(program("nsa-train") + " --shard half 2> err"), 2);
  EXPECT_THAT(slurp("err"), HasSubstr("--shard: half not in {none,optimizer,full}"));
  EXPECT_NE(two_ranks("--shard full --model small.json", "NSA_DDP_BUCKET_MB=1"), 0);
  EXPECT_THAT(slurp("err0"),
              HasSubstr("NSA_DDP_BUCKET_MB is ignored by nsa-train with --shard full"));
}

}  // namespace
}  // namespace nsa::train

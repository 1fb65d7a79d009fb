// Training with rows divided among ranks, which are processes over Gloo.
#include <tuple>

#include "nsa/train/checkpoint/state_testing.h"
#include "nsa/train/ranks_testing.h"

namespace nsa::train {
namespace {

using ::testing::HasSubstr;

class ContextRanksTest : public RanksTest {
 protected:
  void SetUp() override {
    RanksTest::SetUp();
    std::ofstream(dir_ / "long.json")
        << R"({"name": "long", "vocab": 256, "dim": 32, "num_layers": 2, "mlp_hidden": 64, "seq_len": 128,
      "attention": {"num_heads": 4, "num_kv_heads": 2, "qk_head_dim": 8, "v_head_dim": 8, "block_size": 8,
      "block_stride": 4, "sel_block_size": 8, "top_n": 4, "window": 12}})";
  }
  json table(const std::string& result, const std::string& id) {
    for (const json& line : of_type(lines_of(result), "table"))
      if (line["id"] == id) return line["rows"];
    return nullptr;
  }
  int one(const std::string& args) {
    return shell("NSA_NVTX=0 " + program("nsa-train") + " " + args + " 2> err0");
  }
};

TEST_F(ContextRanksTest, TrainAsOneProcessWithWholeRows) {
  const std::string rest = " --model long.json --dtype fp64 --steps 4 --accum 2";
  ASSERT_EQ(one("--data synthetic --warmup 2 --batch 4 --result one" + rest), 0) << slurp("err0");
  const auto hold = [&](int64_t world, const std::string& name, const std::string& args) {
    ASSERT_EQ(all_ranks(world, args + " --result " + name + rest), 0) << slurp("err0");
    expect_near(curve("one"), curve(name), 1e-9);
    EXPECT_EQ(curve(name), curve(name + ".rank1"));
  };
  hold(2, "two", "--batch 4 --context-ranks 2");
  hold(4, "four", "--batch 4 --context-ranks 4");
  hold(4, "data", "--batch 2 --context-ranks 2");
  hold(4, "sharded", "--batch 2 --context-ranks 2 --shard full");
  hold(2, "checkpointed", "--batch 4 --context-ranks 2 --activation-checkpointing");
  EXPECT_EQ(check("two", "lr_trace")["ok"], true);
}

/// Documents that end in every piece, and some that span all of them.
TEST_F(ContextRanksTest, PackedDocumentsTrainAsOneProcess) {
  std::ofstream text(dir_ / "t.jsonl");
  for (int i = 0; i < 2000; ++i)
    text << json{{"text", std::string(static_cast<size_t>(i % 7 == 0 ? 200 : 1 + i * 37 % 61),
                                      static_cast<char>('a' + i % 26))}}
                .dump()
         << "\n";
  text.close();
  ASSERT_EQ(shell(program("nsa-data") + " --in t.jsonl --out .data/docs > out"), 0);
  const std::string rest =
      " --data docs --packing --warmup 2 --model long.json --dtype fp64 "
      "--steps 4 --accum 2 --result ";
  ASSERT_EQ(one("--batch 4" + rest + "one"), 0) << slurp("err0");
  for (const auto& [world, context, batch, more] :
       {std::tuple{2, 2, 4, ""}, {4, 4, 4, ""}, {4, 2, 2, ""}, {4, 2, 2, " --shard full"}}) {
    const Port port;
    std::string command = "export NSA_NVTX=0; rm -f divided*; s=0; ";
    for (int64_t r = 0; r < world; ++r)
      command += start(r, world, port,
                       "--context-ranks " + std::to_string(context) + " --batch " +
                           std::to_string(batch) + more + rest + "divided");
    for (int64_t r = 0; r < world; ++r) command += "wait $p" + std::to_string(r) + " || s=1; ";
    ASSERT_EQ(shell(command + "exit $s"), 0) << slurp("err0");
    expect_near(curve("one"), curve("divided"), 1e-9);
    EXPECT_EQ(steps_of(lines_of("one"))[3]["extra"]["targets"],
              steps_of(lines_of("divided"))[3]["extra"]["targets"]);
    for (const json& row : table("divided", "context")) {
      EXPECT_GT(row.at(2), 0) << row;
      EXPECT_NEAR(row.at(2), row.at(1).get<double>(), 0.1 * row.at(1).get<double>()) << row;
    }
  }
}

/// Queries of a part choose nearly all blocks of the other one, so all are gathered.
TEST_F(ContextRanksTest, TrafficIsWithinATenthOfTheFormula) {
  const std::string args =
      "--model long.json --seq-len 256 --batch 2 --steps 2 --context-ranks 2 --result r";
  ASSERT_EQ(two_ranks(args), 0) << slurp("err0");
  const json rows = table("r", "context");
  ASSERT_EQ(rows.size(), 4U);
  for (const json& row : rows) {
    const double predicted = row.at(1), received = row.at(2);
    EXPECT_GT(received, 0) << row;
    EXPECT_NEAR(received, predicted, 0.1 * predicted) << row;
  }
}

TEST_F(ContextRanksTest, AResumedRunHasTheBitsOfAWholeOne) {
  const std::string rest =
      " --model long.json --batch 2 --schedule-steps 6 --context-ranks 2 --checkpoints ";
  ASSERT_EQ(two_ranks("--steps 6 --result whole" + rest + "w"), 0) << slurp("err0");
  ASSERT_EQ(two_ranks("--steps 3 --result first" + rest + "p"), 0) << slurp("err0");
  ASSERT_EQ(two_ranks("--steps 6 --resume --result second" + rest + "p"), 0) << slurp("err0");
  expect_same_state(dir_ / "w", dir_ / "p", 6);
}

TEST_F(ContextRanksTest, KeptOutRowsHaveTheLossOfWholeRows) {
  make_corpus();
  ASSERT_EQ(shell(program("nsa-data") + " --in t.txt --out .data/kept --val-every 2 > out"), 0);
  for (const std::string packing : {"", " --packing"}) {
    ASSERT_EQ(shell("rm -f one* two*"), 0);
    const std::string args =
        packing +
        " --data kept --model long.json --dtype fp64 --batch 2 --steps 2 --warmup 1 "
        "--validate-every 2 --validate-batches 2 --result ";
    const auto loss = [&](const std::string& name) {
      for (const json& line : of_type(lines_of(name), "metric"))
        if (line["name"] == "loss.validation_nat") return line["value"].get<double>();
      return std::nan("");
    };
    ASSERT_EQ(one(args + "one"), 0) << slurp("err0");
    const Port port;
    ASSERT_EQ(shell("export NSA_NVTX=0; " + start(0, 2, port, "--context-ranks 2" + args + "two") +
                    start(1, 2, port, "--context-ranks 2" + args + "two") +
                    "wait $p0; s=$?; wait $p1; exit $((s + $?))"),
              0)
        << slurp("err0");
    EXPECT_GT(loss("one"), 0);
    EXPECT_NEAR(loss("one"), loss("two"), 1e-9) << packing;
  }
}

TEST_F(ContextRanksTest, WhatCannotBeDividedIsNamedBeforeTraining) {
  const auto refused = [&](const std::string& args, const std::string& reason) {
    EXPECT_NE(two_ranks("--batch 2 --steps 2 --result r " + args), 0) << args;
    EXPECT_THAT(slurp("err0"), HasSubstr(reason));
  };
  refused("--model long.json --context-ranks 3",
          "context_ranks must divide the number of ranks (2), got 3");
  refused("--model long.json --seq-len 48 --context-ranks 2", "multiples of 8 tokens), not of 12");
  refused("--model long.json --seq-len 32 --context-ranks 2", "at least 11 tokens");
  refused("--model tiny_cpu_dense --context-ranks 2",
          "context_ranks must be 1 with the dense model");
}

TEST_F(ContextRanksTest, ADeadRankIsNamed) {
  const Port port;
  const std::string args =
      "--model long.json --batch 2 --steps 100000 --context-ranks 2 --rank-timeout 3 --result r ";
  shell("export NSA_NVTX=0; " + rank(0, 2, port, args) + rank(1, 2, port, args) +
        "sleep 2; kill -9 $p1; wait $p0; exit $?");
  const auto findings = of_type(lines_of("r"), "finding");
  ASSERT_EQ(findings.size(), 1U) << slurp("err0");
  EXPECT_EQ(findings[0]["code"], "RANK_FAULT");
}

}  // namespace
}  // namespace nsa::train

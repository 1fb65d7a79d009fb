// Ranks that were started with unlike options, as processes over Gloo: refused by name before a
// step.
#include "nsa/train/ranks_testing.h"

namespace nsa::train {
namespace {

using ::testing::AllOf;

/// Switches or options that differ between rank 0 and the last rank, and parts of the message. A
/// message lists eight differences, so one start of the ranks shows several.
struct Unlike {
  std::string of_first, of_last;
  std::vector<std::string> named = {};
  std::string both = "";  ///< of every rank
};

class UnlikeRanksTest : public RanksTest {
 protected:
  void SetUp() override {
    RanksTest::SetUp();
    make_corpus();
    make_documents();
    fs::copy(dir_ / ".data", dir_ / "copy", fs::copy_options::recursive);
    std::ofstream(dir_ / "t.txt") << std::string(40000, 'z');
    ASSERT_EQ(shell(program("nsa-data") + " --in t.txt --out other/letters > out"), 0);
  }
  /// The options of a rank: its own, and the usual ones that it does not give.
  static std::string options(const std::string& own) {
    std::string all = own;
    for (const auto& [name, value] : {std::pair{"--data", "synthetic"},
                                      {"--model", "small.json"},
                                      {"--steps", "3"},
                                      {"--warmup", "2"},
                                      {"--batch", "2"},
                                      {"--rank-timeout", "20"}})
      if ((own + " ").find(std::string(name) + " ") == std::string::npos)
        all += std::string(" ") + name + " " + value;
    return all;
  }
  /// A rank in the background; what begins with a capital is a switch.
  std::string unlike_rank(int64_t rank, int64_t world, const Port& port, const std::string& own,
                          const std::string& both) {
    const std::string result = " --result r" + std::to_string(rank);
    return own.starts_with("NSA_") ? start(rank, world, port, options(both) + result, own)
                                   : start(rank, world, port, options(own + " " + both) + result);
  }
  /// Exit statuses of all ranks, joined with spaces.
  std::string statuses(int64_t world, const Unlike& unlike) {
    for (const fs::path& entry : {dir_ / "c", dir_ / "statuses"}) fs::remove_all(entry);
    for (int64_t rank = 0; rank < world; ++rank) fs::remove(result_of(rank));
    const Port port;
    std::string command = "export NSA_NVTX=0; ";
    for (int64_t rank = 0; rank < world; ++rank)
      command += unlike_rank(rank, world, port,
                             rank + 1 == world ? unlike.of_last : unlike.of_first, unlike.both);
    for (int64_t rank = 0; rank < world; ++rank)
      command += "wait $p" + std::to_string(rank) + "; echo -n $? '' >> statuses; ";
    EXPECT_EQ(shell(command), 0);
    return slurp("statuses");
  }
  fs::path result_of(int64_t rank) {
    return dir_ / ("r" + std::to_string(rank) + (rank > 0 ? ".rank" + std::to_string(rank) : ""));
  }
  /// Every rank reports the same difference, and none has begun a step.
  void expect_refused(int64_t world, const Unlike& unlike) {
    for (int64_t rank = 0; rank < world; ++rank) {
      const auto lines = lines_of(result_of(rank).filename());
      EXPECT_TRUE(of_type(lines, "beat").empty());
      const auto findings = of_type(lines, "finding");
      ASSERT_EQ(findings.size(), 1u);
      EXPECT_EQ(findings[0]["code"], "RANK_FAULT");
      const std::string last = " on rank " + std::to_string(world - 1);
      const std::string reason = of_type(lines, "case").at(0)["reason"];
      EXPECT_THAT(reason,
                  AllOf(HasSubstr("RANK_FAULT: the ranks were not started alike: "),
                        HasSubstr(last), HasSubstr("start every rank with the same options")));
      for (const std::string& part : unlike.named) EXPECT_THAT(reason, HasSubstr(part));
      EXPECT_EQ(lines.back()["type"], "done");
    }
  }
};

TEST_F(UnlikeRanksTest, AreRefusedByNameOnEveryRankBeforeAStep) {
  const auto is = [](const std::string& name, const std::string& first, const std::string& here) {
    return (name.starts_with("NSA_") ? "switch " : "option ") + name + " is " + first +
           " on rank 0 and " + here + " on rank 1";
  };
  const std::vector<Unlike> all = {
      {"--data synthetic", "--data letters", {"option data is synthetic: fresh", "and letters, "}},
      {"--data letters", "--data short", {"option data is letters, ", "and short, "}},
      {"--data letters",
       "--data letters --data-root other",
       {"option data is letters, 42891", "and letters, 40001"}},
      {"--lr 0.003 --min-lr 0 --seed 1 --batch 2 --accum 1 --weight-decay 0.1 --clip-norm 1 "
       "--warmup 2",
       "--lr 0.0030001 --min-lr 0.001 --seed 2 --batch 3 --accum 2 --weight-decay 0 "
       "--clip-norm 0.5 --warmup 1",
       {is("lr", "0.003", "0.0030001"), is("min_lr", "0", "0.001"), is("seed", "1", "2"),
        is("batch", "2", "3"), is("accum", "1", "2"), is("weight_decay", "0.1", "0"),
        is("clip_norm", "1", "0.5"), is("warmup", "2", "1")}},
      {"--steps 3 --dtype fp32 --backend auto --cuda-graph off",
       "--steps 4 --dtype bf16 --backend switches --cuda-graph auto --packing "
       "--activation-checkpointing",
       {is("steps", "3", "4"), is("dtype", "Float", "BFloat16"), is("backend", "auto", "switches"),
        is("cuda_graph", "off", "auto"), is("packing", "none", "documents"),
        is("activation_checkpointing", "false", "true")}},
      {"--dtype fp64 --model small.json",
       "--model wide.json",
       {is("dtype", "Double", "Float"), "option model is small: ", "and wide: "}},
      {"NSA_DDP_BUCKET_MB=25",
       "NSA_DDP_BUCKET_MB=1 NSA_DDP_COMPRESS=bf16 NSA_USE_SEL_VARLEN=1 NSA_SEQ_LEN=24",
       {is("NSA_DDP_BUCKET_MB", "25", "1"), is("NSA_DDP_COMPRESS", "none", "bf16"),
        is("NSA_USE_SEL_VARLEN", "0", "1"), is("seq_len", "32", "24")}},
      {"--shard full",
       "--shard full --shard-group 2 --seq-len 16",
       {is("shard_group", "0", "2"), is("seq_len", "32", "16")}},
      {"--weights w --checkpoints c",
       "--shard optimizer",
       {is("weights", "given", "none"), is("checkpoints", "a folder", "none"),
        is("shard", "none", "optimizer")}},
      {"",
       "--checkpoint-every 1 --slice-steps 1 --schedule-steps 9 --resume",
       {is("checkpoint_every", "0", "1"), is("slice_steps", "0", "1"),
        is("schedule_steps", "3", "9"), is("resume", "false", "true")},
       "--checkpoints c"},
  };
  for (const Unlike& unlike : all) {
    SCOPED_TRACE(unlike.of_first + " | " + unlike.of_last);
    EXPECT_EQ(statuses(2, unlike), "1 1 ") << slurp("err0") << slurp("err1");
    expect_refused(2, unlike);
  }
}

TEST_F(UnlikeRanksTest, TheOneOfThreeThatDiffersIsNamed) {
  const Unlike unlike = {"--seed 5", "--seed 6", {"option seed is 5 on rank 0 and 6 on rank 2"}};
  EXPECT_EQ(statuses(3, unlike), "1 1 1 ") << slurp("err0") << slurp("err1") << slurp("err2");
  expect_refused(3, unlike);
  EXPECT_THAT(slurp("err1"), ::testing::Not(HasSubstr("on rank 1")));
}

/// One folder of checkpoints holds a step, the other one none.
TEST_F(UnlikeRanksTest, ThatGoOnFromAnotherStepAreRefused) {
  const std::string more = " --resume --batch 4 --steps 2 --ranks 2";
  ASSERT_EQ(two_ranks("--model small.json --result w --checkpoints begun" + more), 0)
      << slurp("err0");
  const Unlike unlike = {"--checkpoints begun" + more,
                         "--checkpoints empty" + more,
                         {"option checkpoints is at step 2 on rank 0 and at step 0"}};
  EXPECT_EQ(statuses(2, unlike), "1 1 ") << slurp("err0") << slurp("err1");
  expect_refused(2, unlike);
}

TEST_F(UnlikeRanksTest, RanksTrainWithAllowedDifferences) {
  const std::vector<Unlike> all = {
      {"--data letters --threads 1",
       "--data letters --data-root copy --threads 2 --seq-len 32 --schedule-steps 3 "
       "--rank-timeout 60 --mode time --checkpoint-keep 7",
       {},
       "--checkpoints c"},
      {"NSA_FWE_Q=2", "NSA_FWE_Q=8 NSA_BATCH_SIZE=2"},
  };
  for (const Unlike& unlike : all) {
    SCOPED_TRACE(unlike.of_first + " | " + unlike.of_last);
    EXPECT_EQ(statuses(2, unlike), "0 0 ") << slurp("err0") << slurp("err1");
  }
}

}  // namespace
}  // namespace nsa::train

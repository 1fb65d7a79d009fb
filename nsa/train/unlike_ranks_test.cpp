// Ranks that were started with unlike options, as processes over Gloo: refused by name before a
// step.
#include "nsa/train/ranks_testing.h"

namespace nsa::train {
namespace {

using ::testing::AllOf;

/// Switches or options that differ between rank 0 and the last rank, and parts of the message.
struct Unlike {
  std::string of_first, of_last;
  std::string text_first, text_last;
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
      EXPECT_THAT(of_type(lines, "case").at(0)["reason"].get<std::string>(),
                  AllOf(HasSubstr("RANK_FAULT: the ranks were not started alike: "),
                        HasSubstr(unlike.text_first), HasSubstr(unlike.text_last), HasSubstr(last),
                        HasSubstr("start every rank with the same options")));
      EXPECT_EQ(lines.back()["type"], "done");
    }
  }
};

TEST_F(UnlikeRanksTest, AreRefusedByNameOnEveryRankBeforeAStep) {
  const std::vector<Unlike> all = {
      {"--data synthetic", "--data letters", "option data is synthetic: fresh", "and letters, "},
      {"--data letters", "--data short", "option data is letters, ", "and short, "},
      {"--data letters", "--data letters --data-root other", "option data is letters, 42891",
       "and letters, 40001"},
      {"--lr 0.003", "--lr 0.0030001", "option lr is 0.003 on rank 0 ", "and 0.0030001"},
      {"--min-lr 0", "--min-lr 0.001", "option min_lr is 0 on rank 0 ", "and 0.001"},
      {"--seed 1", "--seed 2", "option seed is 1 on rank 0 ", "and 2"},
      {"", "--seq-len 16", "option seq_len is 32 on rank 0 ", "and 16"},
      {"", "NSA_SEQ_LEN=24", "option seq_len is 32 on rank 0 ", "and 24"},
      {"--batch 2", "--batch 3", "option batch is 2 on rank 0 ", "and 3"},
      {"--accum 1", "--accum 2", "option accum is 1 on rank 0 ", "and 2"},
      {"", "--packing", "option packing is none on rank 0 ", "and documents"},
      {"--weight-decay 0.1", "--weight-decay 0", "option weight_decay is 0.1 on rank 0 ", "and 0"},
      {"--clip-norm 1", "--clip-norm 0.5", "option clip_norm is 1 on rank 0 ", "and 0.5"},
      {"--warmup 2", "--warmup 1", "option warmup is 2 on rank 0 ", "and 1"},
      {"--steps 3", "--steps 4", "option steps is 3 on rank 0 ", "and 4"},
      {"", "--schedule-steps 9", "option schedule_steps is 3 on rank 0 ", "and 9"},
      {"--dtype fp32", "--dtype bf16", "option dtype is Float on rank 0 ", "and BFloat16"},
      {"--dtype fp64", "", "option dtype is Double on rank 0 ", "and Float"},
      {"--model small.json", "--model wide.json", "option model is small: ", "and wide: "},
      {"--backend auto", "--backend switches", "option backend is auto on rank 0 ", "and switches"},
      {"--cuda-graph off", "--cuda-graph auto", "option cuda_graph is off on rank 0 ", "and auto"},
      {"NSA_DDP_BUCKET_MB=25", "NSA_DDP_BUCKET_MB=1", "switch NSA_DDP_BUCKET_MB is 25 on rank 0 ",
       "and 1"},
      {"", "NSA_DDP_COMPRESS=bf16", "switch NSA_DDP_COMPRESS is none on rank 0 ", "and bf16"},
      {"", "NSA_USE_SEL_VARLEN=1", "switch NSA_USE_SEL_VARLEN is 0 on rank 0 ", "and 1"},
      {"", "--shard optimizer", "option shard is none on rank 0 ", "and optimizer"},
      {"--shard full", "--shard full --shard-group 2", "option shard_group is 0 on rank 0 ",
       "and 2"},
      {"", "--activation-checkpointing", "option activation_checkpointing is false on rank 0 ",
       "and true"},
      {"--weights w", "", "option weights is given on rank 0 ", "and none"},
      {"--checkpoints c", "", "option checkpoints is a folder on rank 0 ", "and none"},
      {"", "--checkpoint-every 1", "option checkpoint_every is 0 on rank 0 ", "and 1",
       "--checkpoints c"},
      {"", "--slice-steps 1", "option slice_steps is 0 on rank 0 ", "and 1", "--checkpoints c"},
      {"", "--resume", "option resume is false on rank 0 ", "and true", "--checkpoints c"},
  };
  for (const Unlike& unlike : all) {
    SCOPED_TRACE(unlike.of_first + " | " + unlike.of_last);
    EXPECT_EQ(statuses(2, unlike), "1 1 ") << slurp("err0") << slurp("err1");
    expect_refused(2, unlike);
  }
}

TEST_F(UnlikeRanksTest, TheOneOfThreeThatDiffersIsNamed) {
  const Unlike unlike = {"--seed 5", "--seed 6", "option seed is 5 on rank 0 ", "and 6 on rank 2"};
  EXPECT_EQ(statuses(3, unlike), "1 1 1 ") << slurp("err0") << slurp("err1") << slurp("err2");
  expect_refused(3, unlike);
  EXPECT_THAT(slurp("err1"), ::testing::Not(HasSubstr("on rank 1")));
}

/// One folder of checkpoints holds a step, the other one none.
TEST_F(UnlikeRanksTest, ThatGoOnFromAnotherStepAreRefused) {
  const std::string more = " --resume --batch 4 --steps 2 --ranks 2";
  ASSERT_EQ(two_ranks("--model small.json --result w --checkpoints begun" + more), 0)
      << slurp("err0");
  const Unlike unlike = {"--checkpoints begun" + more, "--checkpoints empty" + more,
                         "option checkpoints is at step 2 on rank 0 ", "and at step 0"};
  EXPECT_EQ(statuses(2, unlike), "1 1 ") << slurp("err0") << slurp("err1");
  expect_refused(2, unlike);
}

TEST_F(UnlikeRanksTest, RanksTrainWithAllowedDifferences) {
  const std::vector<Unlike> all = {
      {"--data letters", "--data letters --data-root copy", "", ""},
      {"--threads 1", "--threads 2", "", ""},
      {"", "--seq-len 32", "", ""},
      {"", "--schedule-steps 3", "", ""},
      {"--batch 2", "NSA_BATCH_SIZE=2", "", ""},
      {"", "--rank-timeout 60", "", ""},
      {"NSA_FWE_Q=2", "NSA_FWE_Q=8", "", ""},
      {"", "--mode time", "", ""},
      {"", "--checkpoint-keep 7", "", "", "--checkpoints c"},
  };
  for (const Unlike& unlike : all) {
    SCOPED_TRACE(unlike.of_first + " | " + unlike.of_last);
    EXPECT_EQ(statuses(2, unlike), "0 0 ") << slurp("err0") << slurp("err1");
  }
}

}  // namespace
}  // namespace nsa::train

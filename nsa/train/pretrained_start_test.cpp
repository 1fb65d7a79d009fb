// nsa-train --weights, as a process: where a run starts, what a checkpoint keeps, what ranks share.
#include "nsa/train/checkpoint/checkpoint_store.h"
#include "nsa/train/checkpoint/state_testing.h"
#include "nsa/train/checkpoint/weights_testing.h"
#include "nsa/train/ranks_testing.h"

namespace nsa::train {
namespace {

using ::testing::AllOf;
using ::testing::Not;

class PretrainedStartTest : public RanksTest {
 protected:
  void SetUp() override {
    RanksTest::SetUp();
    std::ofstream(dir_ / "family.json") << small_family_model().dump();
    write_shards(dir_ / "first", random_family_weights(1));
    write_tensor_file(dir_ / "second.safetensors", random_family_weights(2));
    write_tensor_file(dir_ / "third.safetensors", random_family_weights(3));
  }
  std::string call(const std::string& more, const std::string& data = "synthetic") {
    return program("nsa-train") + " --model family.json --batch 2 --warmup 1 --data " + data +
           " --result r " + more + " 2> err";
  }
  /// The loss of the first step of a run that must succeed.
  double first_loss(const std::string& more, const std::string& data = "synthetic") {
    fs::remove(dir_ / "r");
    EXPECT_EQ(shell(call("--steps 2 " + more, data)), 0) << slurp("err");
    std::ifstream in(dir_ / "r");
    for (std::string line; std::getline(in, line);)
      if (const json beat = json::parse(line); beat["type"] == "beat" && beat["at"] == "step")
        return beat["extra"]["loss"];
    return -1;
  }
};

TEST_F(PretrainedStartTest, WeightsDecideTheFirstLossAndTheSeedDoesNot) {
  const double random = first_loss("");
  const double first = first_loss("--weights first");
  EXPECT_THAT(slurp("err"), HasSubstr("weights: first: 22 tensors, sha256 "));
  EXPECT_NE(first, random);
  EXPECT_EQ(first_loss("--weights first/model.safetensors.index.json"), first);
  EXPECT_NE(first_loss("--weights second.safetensors"), first);
}

TEST_F(PretrainedStartTest, ACorpusOfBytesFitsALargerVocabulary) {
  make_corpus();
  EXPECT_GT(first_loss("--weights first", "letters"), 0);
  EXPECT_THAT(slurp("err"),
              HasSubstr("tokens are bytes, the first 256 of the model's vocabulary of 300"));
  std::ofstream(dir_ / "family.json") << small_family_model({{"vocab", 255}}).dump();
  EXPECT_EQ(shell(call("--steps 1", "letters")), 1);
  EXPECT_THAT(slurp("err"), HasSubstr("must have a vocab of at least 256, got 255"));
}

TEST_F(PretrainedStartTest, AFileThatDoesNotFitEndsTheRunBeforeAStep) {
  EXPECT_EQ(shell(call("--steps 2 --weights none.safetensors")), 1);
  EXPECT_THAT(slurp("err"), HasSubstr("weights: none.safetensors does not exist"));
  EXPECT_THAT(slurp("r"), Not(HasSubstr("\"at\":\"step\"")));
  EXPECT_EQ(shell("sed -i 's/\"shared_kv\":true/\"shared_kv\":false/' family.json; " +
                  call("--steps 2 --weights first")),
            1);
  EXPECT_THAT(slurp("err"), HasSubstr("model family must have shared_kv true, as nsa_1b has"));
}

TEST_F(PretrainedStartTest, ACheckpointHasItsOwnAndReadsNone) {
  const std::string steps = "--steps 4 --checkpoints ";
  ASSERT_EQ(shell(call(steps + "whole --weights first")), 0) << slurp("err");
  ASSERT_EQ(shell(call(steps + "parts --weights first --resume --slice-steps 2")), 0)
      << slurp("err");
  EXPECT_THAT(slurp("err"), HasSubstr("weights: first: 22 tensors"));
  ASSERT_EQ(shell(call(steps + "parts --weights gone --resume")), 0) << slurp("err");
  EXPECT_THAT(slurp("err"), AllOf(HasSubstr("weights: gone: not read: the checkpoint has its own"),
                                  HasSubstr("resumed behind step 2")));
  expect_same_state(dir_ / "whole", dir_ / "parts", 4);
}

TEST_F(PretrainedStartTest, RanksReadTheSameFile) {
  const std::string same =
      "--model family.json --steps 2 --data synthetic --warmup 1 --batch 2 "
      "--rank-timeout 60 --weights ";
  const auto both = [&](const std::string& first, const std::string& last) {
    for (const char* result : {"r", "r.rank1"}) fs::remove(dir_ / result);
    const Port port;
    return shell(start(0, 2, port, same + first + " --result r") +
                 start(1, 2, port, same + last + " --result r") +
                 "wait $p0; a=$?; wait $p1; exit $((a + $?))");
  };
  EXPECT_EQ(both("first", "first"), 0) << slurp("err0") << slurp("err1");
  EXPECT_EQ(both("third.safetensors", "second.safetensors"), 2);
  EXPECT_THAT(slurp("err0"), AllOf(HasSubstr("RANK_FAULT: the ranks were not started alike: option "
                                             "weights is 22 tensors, sha256 "),
                                   HasSubstr(" on rank 1")));
  EXPECT_EQ(both("first", "none"), 2);
  for (const char* err : {"err0", "err1"})
    EXPECT_THAT(slurp(err), HasSubstr("weights: none does not exist on rank 1")) << err;
}

}  // namespace
}  // namespace nsa::train

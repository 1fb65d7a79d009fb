// Killed at any moment and continued, a run ends with the bits of an uninterrupted run.
#include <chrono>
#include <cstdlib>

#include "nsa/train/checkpoint/checkpoint_store.h"
#include "nsa/train/checkpoint/state_testing.h"
#include "nsa/train/program_testing.h"

namespace nsa::train {
namespace {

using tensor_file::FileTensor;
using tensor_file::read_tensor_file;
using ::testing::AllOf;

class ResumeTest : public ProgramTest {
 protected:
  static constexpr int kSteps = 12;

  std::string call(const std::string& folder, const std::string& more, int steps = kSteps) {
    return program("nsa-train") +
           " --model small.json --data synthetic --warmup 3 --batch 2 --accum 2 --steps " +
           std::to_string(steps) + " --checkpoints " + folder + " --result " + folder + ".jsonl " +
           more + " 2> err";
  }
  fs::path last_checkpoint(const std::string& folder) {
    return checkpoint_path(dir_ / folder, kSteps);
  }
  void expect_same_end(const std::string& a, const std::string& b) {
    expect_same_state(dir_ / a, dir_ / b, kSteps);
    EXPECT_EQ(losses(a), losses(b));
  }
  /// Losses and gradient norms of the whole run, from the last checkpoint.
  std::vector<std::pair<double, double>> losses(const std::string& folder) {
    const FileTensor trace = read_tensor_file(last_checkpoint(folder)).tensors.at("trace");
    const std::vector<double> values = tensor_file::to_doubles(trace);
    const auto width = static_cast<size_t>(trace.shape[1]);
    std::vector<std::pair<double, double>> result;
    for (size_t row = 0; row < values.size(); row += width)
      result.emplace_back(values[row + 2], values[row + 3]);
    EXPECT_EQ(result.size(), static_cast<size_t>(kSteps));
    return result;
  }
};

TEST_F(ResumeTest, SlicesEndAsTheWholeRunDoes) {
  ASSERT_EQ(shell(kReadInPlace + call("whole", "")), 0) << slurp("err");
  ASSERT_EQ(shell(call("parts", "--slice-steps 5")), 0) << slurp("err");
  ASSERT_EQ(shell(call("parts", "--slice-steps 1 --resume")), 0) << slurp("err");
  EXPECT_THAT(slurp("err"), HasSubstr("resumed behind step 5"));
  ASSERT_EQ(shell(call("parts", "--resume")), 0) << slurp("err");
  EXPECT_THAT(slurp("err"), HasSubstr("resumed behind step 6"));
  expect_same_end("whole", "parts");
}

/// A long run in slices that are asked for one by one: each goes on to a later step of one
/// schedule.
TEST_F(ResumeTest, ALaterEndOfTheSameScheduleContinuesTheRun) {
  const auto up_to = [&](const std::string& folder, int steps, const std::string& more) {
    return call(folder, "--schedule-steps 40 " + more, steps);
  };
  ASSERT_EQ(shell(kReadInPlace + up_to("whole", kSteps, "")), 0) << slurp("err");
  // Too few steps for a share of waits for batches, which a busy machine makes large.
  ASSERT_EQ(shell(up_to("parts", 4, "--resume")), 0) << slurp("err");
  ASSERT_EQ(shell(up_to("parts", kSteps, "--resume")), 0) << slurp("err");
  EXPECT_THAT(slurp("err"), HasSubstr("resumed behind step 4"));
  expect_same_end("whole", "parts");
  EXPECT_NE(shell(call("parts", "--resume")), 0) << "another schedule";
  EXPECT_EQ(shell(up_to("short", 41, "")), 2);
  EXPECT_THAT(slurp("err"), HasSubstr("schedule_steps must be 0 or >= steps (41), got 40"));
}

/// The comparison can fail: another seed ends elsewhere.
TEST_F(ResumeTest, ADifferentRunIsSeen) {
  ASSERT_EQ(shell(kReadInPlace + call("a", "")), 0);
  ASSERT_EQ(shell(kReadInPlace + call("b", "--seed 2")), 0);
  EXPECT_NE(losses("a"), losses("b"));
  const auto head = [&](const std::string& folder) {
    return read_tensor_file(last_checkpoint(folder)).tensors.at("parameter.head").bytes;
  };
  EXPECT_FALSE(head("a") == head("b"));
}

/// SIGKILL at many moments, as shares of the time that a whole run takes on this machine.
TEST_F(ResumeTest, KilledAgainAndAgain) {
  const auto begun = std::chrono::steady_clock::now();
  ASSERT_EQ(shell(kReadInPlace + call("whole", "--checkpoint-every 1")), 0) << slurp("err");
  const double whole_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  const std::string start = call("killed", "--checkpoint-every 1 --resume") + " & pid=$!; sleep ";
  int kills = 0, status = 1;
  for (; status != 0 && kills < 60; ++kills) {
    const double delay_s = whole_s * (0.1 + 0.03 * kills + 0.007 * (kills % 5));
    status = shell(start + std::to_string(delay_s) + "; kill -KILL $pid 2> /dev/null; " +
                   "wait $pid 2> /dev/null; test -e " + last_checkpoint("killed").string());
  }
  ASSERT_EQ(status, 0) << "not finished after " << kills << " kills: " << slurp("err");
  EXPECT_GT(kills, 1) << "it was never killed";
  expect_same_end("whole", "killed");
}

TEST_F(ResumeTest, TerminationSavesAndGoesOn) {
  ASSERT_EQ(shell(kReadInPlace + call("whole", "")), 0);
  EXPECT_EQ(terminate(kReadInPlace + call("ended", ""), "ended.jsonl", "hello"), 143)
      << slurp("err");
  EXPECT_EQ(checkpoint_steps(dir_ / "ended").size(), 1u);
  ASSERT_EQ(shell(kReadInPlace + call("ended", "--resume")), 0) << slurp("err");
  expect_same_end("whole", "ended");
}

TEST_F(ResumeTest, FaultsAreNamed) {
  ASSERT_EQ(shell(call("run", "--slice-steps 2 --checkpoint-every 1")), 0);
  EXPECT_EQ(shell(call("run", "")), 1);
  EXPECT_THAT(slurp("err"), HasSubstr("holds checkpoints of an earlier run up to step 2"));
  EXPECT_EQ(shell(call("run", "--resume --seed 9")), 1);
  EXPECT_THAT(slurp("err"), HasSubstr("is of another run: seed is 1 there and 9 here"));
  EXPECT_EQ(shell(call("run", "--resume --lr 0.1")), 1);
  EXPECT_THAT(slurp("err"), HasSubstr("lr is 0.003 there and 0.1 here"));
  EXPECT_EQ(shell("NSA_FORCE_PARITY=1 " + call("run", "--resume")), 1);
  EXPECT_THAT(slurp("err"), HasSubstr("NSA_FORCE_PARITY is 0 there and 1 here"));
  fs::resize_file(checkpoint_path(dir_ / "run", 2), 1000);
  EXPECT_EQ(shell(call("run", "--resume")), 1);
  EXPECT_THAT(slurp("err"), AllOf(HasSubstr("step-00000002.safetensors is damaged"),
                                  HasSubstr("remove it to continue from step 1")));
  fs::remove(checkpoint_path(dir_ / "run", 2));
  EXPECT_EQ(shell(call("run", "--resume")), 0) << slurp("err");
}

TEST_F(ResumeTest, AFullDiskEndsTheRunAndKeepsTheLastCheckpoint) {
  ASSERT_EQ(shell(kReadInPlace + call("whole", "")), 0);
  ASSERT_EQ(shell(call("run", "--slice-steps 4")), 0);
  const std::string limited =
      "(trap '' XFSZ; ulimit -f 100; " + call("run", "--resume --checkpoint-every 1") + ")";
  EXPECT_EQ(shell(limited), 1);
  EXPECT_THAT(slurp("err"), AllOf(HasSubstr("step-00000005.safetensors: cannot be written"),
                                  HasSubstr("the one of step 4 is intact")));
  ASSERT_EQ(shell(call("run", "--resume")), 0) << slurp("err");
  expect_same_end("whole", "run");
}

}  // namespace
}  // namespace nsa::train

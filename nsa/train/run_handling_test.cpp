// What a user does with nsa-train beside training: evaluate, extend, read losses and errors.
#include <algorithm>

#include "nsa/train/program_testing.h"

namespace nsa::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

class RunHandlingTest : public ProgramTest {
 protected:
  void make_text(const std::string& val_every = "2") {
    ASSERT_EQ(shell("seq -f 'line %.0f of a text' 5000 > t.txt; " + program("nsa-data") +
                    " --in t.txt --out .data/letters --val-every " + val_every + " > out"),
              0);
  }
  std::string train(const std::string& more) {
    return program("nsa-train") + " --model small.json --data letters --warmup 2 --batch 2 " +
           more + " 2> err";
  }
  /// Values of a metric in a result file, in order.
  std::vector<json> figures(const std::string& file, const std::string& name) {
    std::vector<json> found;
    std::ifstream in(dir_ / file);
    for (std::string line; std::getline(in, line);)
      if (const json one = json::parse(line); one.value("name", "") == name)
        found.push_back(one["value"]);
    return found;
  }
  int64_t lines_of(const std::string& name) { return std::ranges::count(slurp(name), '\n'); }
};

TEST_F(RunHandlingTest, EvaluationMeasuresTheNewestCheckpointAndTrainsNothing) {
  make_text();
  const std::string steps = "--steps 12 --checkpoints c --validate-batches 3 ";
  ASSERT_EQ(shell(train(steps + "--validate-every 12 --result r")), 0) << slurp("err");
  const std::string before = slurp("c/step-00000012.safetensors");
  ASSERT_EQ(shell(train(steps + "--resume --eval --result e")), 0) << slurp("err");
  EXPECT_THAT(slurp("err"), HasSubstr("step 12/12  loss of kept-out rows "));
  EXPECT_EQ(figures("e", "loss.validation_nat"), figures("r", "loss.validation_nat"));
  EXPECT_FALSE(figures("e", "loss.validation_nat").at(0).is_null());
  EXPECT_TRUE(slurp("c/step-00000012.safetensors") == before);
  ASSERT_EQ(shell(train("--eval --validate-batches 3 --result first")), 0) << slurp("err");
  EXPECT_GT(figures("first", "loss.validation_nat").at(0), 5.0) << "weights of the seed";
  EXPECT_EQ(figures("first", "steps.done_count").at(0), 0);
}

TEST_F(RunHandlingTest, EvaluationNeedsKeptOutRows) {
  make_text("0");
  EXPECT_EQ(shell(train("--eval")), 1);
  EXPECT_THAT(slurp("err"),
              AllOf(HasSubstr("has no tokens in split val"), HasSubstr("keep more blocks out")));
  EXPECT_EQ(shell(program("nsa-train") + " --model small.json --data synthetic --eval 2> err"), 2);
  EXPECT_THAT(slurp("err"), HasSubstr("eval must be false where data is synthetic"));
}

TEST_F(RunHandlingTest, AFinishedRunIsExtended) {
  make_text();
  ASSERT_EQ(shell(train("--steps 20 --checkpoints c")), 0) << slurp("err");
  ASSERT_EQ(shell(train("--steps 26 --slice-steps 3 --checkpoints c --resume --result a")), 0)
      << slurp("err");
  EXPECT_THAT(slurp("err"), HasSubstr("extended from 20 to 26 steps"));
  ASSERT_EQ(shell(train("--steps 26 --checkpoints c --resume --result b")), 0) << slurp("err");
  EXPECT_THAT(slurp("err"), Not(HasSubstr("extended")));
  EXPECT_EQ(figures("b", "steps.done_count").at(0), 26);
  EXPECT_EQ(figures("b", "lr.trace_matches_bool").at(0), true);
  EXPECT_EQ(shell(train("--steps 20 --checkpoints c --resume")), 1) << "a shorter run is another";
  EXPECT_THAT(slurp("err"), HasSubstr("steps is 26 there and 20 here"));
  ASSERT_EQ(shell(train("--steps 20 --slice-steps 5 --checkpoints d")), 0) << slurp("err");
  EXPECT_EQ(shell(train("--steps 26 --checkpoints d --resume")), 1)
      << "it did not do all of its own";
  EXPECT_THAT(slurp("err"), HasSubstr("steps is 20 there and 26 here"));
}

TEST_F(RunHandlingTest, ALearningRateFarTooHighIsCalledDivergence) {
  const std::string call = program("nsa-train") +
                           " --model small.json --data synthetic --steps 300 --warmup 2 --result r "
                           "--lr 100 2> err";
  EXPECT_EQ(shell(call), 1);
  EXPECT_THAT(slurp("err"),
              AllOf(HasSubstr("DIVERGED: the loss rose to "), Not(HasSubstr("STUCK_METRIC"))));
  EXPECT_THAT(slurp("r"), Not(HasSubstr("\"code\":\"STUCK_METRIC\",\"symptom\"")));
}

TEST_F(RunHandlingTest, LossesAreATable) {
  make_text();
  const std::string run = "--steps 6 --checkpoints c --validate-every 3 --out o ";
  ASSERT_EQ(shell(train(run + "--slice-steps 4")), 0) << slurp("err");
  EXPECT_EQ(lines_of("o/losses.csv"), 1 + 4);
  ASSERT_EQ(shell(train(run + "--resume")), 0) << slurp("err");
  EXPECT_EQ(lines_of("o/losses.csv"), 1 + 6);
  EXPECT_EQ(shell("awk -F, 'NR > 1 && ($2 < 1 || NF != 6) { exit 1 }' o/losses.csv"), 0);
  EXPECT_EQ(shell("test $(awk -F, '$3 > 1' o/losses.csv | grep -c ^6,) = 1"), 0) << "kept-out rows";
}

/// Nothing that a run measured before it went on from a checkpoint is lost to its record.
TEST_F(RunHandlingTest, TheRecordOfAResumedRunHasTheStepsBefore) {
  make_text();
  const std::string run =
      "--steps 8 --checkpoints c --validate-every 2 --record-every 3 --lr 0.1 --min-lr 0.1 ";
  const auto beats = [&](const std::string& file, const std::string& at) {
    std::vector<std::pair<int64_t, bool>> found;
    std::istringstream in(slurp(file));
    for (std::string line; std::getline(in, line);) {
      const auto one = nlohmann::json::parse(line);
      if (one.at("type") == "beat" && one.value("at", "") == at)
        found.emplace_back(one.at("step"), one.at("extra").contains("validation_loss"));
    }
    return found;
  };
  ASSERT_EQ(shell(train(run + "--slice-steps 5 --result a")), 0) << slurp("err");
  ASSERT_EQ(shell(train(run + "--resume --result b")), 0) << slurp("err");
  EXPECT_THAT(beats("a", "earlier step"), IsEmpty());
  EXPECT_EQ(beats("b", "earlier step"), beats("a", "step"));
  EXPECT_THAT(beats("b", "earlier step"),
              ElementsAre(std::pair(1, false), std::pair(2, true), std::pair(3, false),
                          std::pair(4, true), std::pair(5, true)));
  const json least = figures("a", "loss.validation_min_nat").at(0);
  EXPECT_EQ(figures("b", "loss.validation_min_nat").at(0), least);
  EXPECT_GT(figures("b", "loss.validation_nat").at(0), least) << "it is one of the steps before";
}

TEST_F(RunHandlingTest, ACheckpointContinuesAText) {
  make_text();
  const std::string run = "--steps 60 --lr 0.01 --checkpoints c ";
  ASSERT_EQ(shell(train(run)), 0) << slurp("err");
  const auto sample = [&](const std::string& more, const std::string& to) {
    EXPECT_EQ(
        shell(train(run + "--resume --sample-tokens 40 --sample 'line 12' " + more) + " > " + to),
        0)
        << slurp("err");
    return slurp(to);
  };
  const std::string greedy = sample("", "a");
  EXPECT_TRUE(greedy.starts_with("line 12")) << greedy;
  EXPECT_EQ(greedy, sample("", "b"));
  EXPECT_NE(greedy, sample("--temperature 2", "d"));
  EXPECT_EQ(shell(train("--attention dense --sample x")), 1);
  EXPECT_THAT(slurp("err"), HasSubstr("decode cache, which the dense model small does not have"));
}

TEST_F(RunHandlingTest, AnErrorIsToldOnce) {
  EXPECT_EQ(shell(train("")), 1);
  EXPECT_THAT(slurp("err"), HasSubstr("failed: DATA_MISSING: no corpus at .data/letters"));
  EXPECT_EQ(lines_of("err"), 1) << slurp("err");
  EXPECT_EQ(
      shell(program("nsa-train") + " --model small.json --data synthetic --steps 9 --warmup 0 "
                                   "--lr 1e25 --clip-norm 0 2> err"),
      1);
  EXPECT_EQ(shell("test $(grep -c 'not finite' err) = 1"), 0) << slurp("err");
}

}  // namespace
}  // namespace nsa::train

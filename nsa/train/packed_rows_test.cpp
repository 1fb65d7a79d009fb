// Packed documents as rows of nsa-train, and rows of one token.
#include "nsa/train/program_testing.h"

#include <algorithm>
#include <tuple>

namespace nsa::train {
namespace {

/// Documents of a corpus packed in rows: resumed, the run has the bits of the uninterrupted one;
/// and they are other bits than those of running text.
TEST_F(ProgramTest, PackedRunsAreResumedExactly) {
  make_documents();
  const json args = {{"model", "small.json"}, {"data", "short"}, {"steps", 4}, {"warmup", 2}};
  const auto losses = [&](const json& more) {
    json all = args;
    all.update(more);
    std::vector<json> found;
    for (const json& beat : of_type(work(request(all)), "beat"))
      if (beat["at"] == "step") found.push_back(beat["extra"]["loss"]);
    return found;
  };
  const auto whole = losses({{"packing", true}});
  auto resumed = losses({{"packing", true}, {"checkpoints", "c"}, {"slice_steps", 2}});
  ASSERT_EQ(resumed.size(), 2u);
  for (const json& loss : losses({{"packing", true}, {"checkpoints", "c"}, {"resume", true}}))
    resumed.push_back(loss);
  EXPECT_EQ(resumed, whole);
  EXPECT_NE(losses({{"packing", false}}), whole);
}

/// Documents of one letter: of rows this short many have no target, and steps of one row as well.
TEST_F(ProgramTest, PackedRowsWithoutTargetsTrainAndCountForNothing) {
  std::ofstream text(dir_ / "t.jsonl");
  for (int i = 0; i < 3000; ++i)
    text << json{{"text", std::string(1, static_cast<char>('a' + i % 7))}}.dump() << "\n";
  text.close();
  ASSERT_EQ(shell(program("nsa-data") + " --in t.jsonl --out .data/letters > out"), 0);
  for (const auto& [seq_len, batch, accum] :
       {std::tuple{1, 1, 1}, {1, 2, 1}, {1, 1, 3}, {2, 1, 1}}) {
    SCOPED_TRACE(std::to_string(seq_len) + " " + std::to_string(batch) + " " +
                 std::to_string(accum));
    const auto lines = work(request({{"model", "small.json"},
                                     {"data", "letters"},
                                     {"steps", 60},
                                     {"warmup", 2},
                                     {"packing", true},
                                     {"seq_len", seq_len},
                                     {"batch", batch},
                                     {"accum", accum}}));
    EXPECT_EQ(of_type(lines, "case").at(0)["status"], "ok") << of_type(lines, "case").at(0);
    EXPECT_THAT(of_type(lines, "finding"), ::testing::IsEmpty());
    std::vector<double> losses;
    for (const json& step : steps_of(lines)) {
      EXPECT_EQ(step["extra"].contains("loss"), step["extra"].value("targets", -1) > 0) << step;
      if (step["extra"].contains("loss")) losses.push_back(step["extra"]["loss"]);
    }
    ASSERT_GE(losses.size(), 20u);
    const auto m = metrics(lines);
    EXPECT_EQ(m.at("steps.done_count")["value"], 60);
    EXPECT_EQ(m.at("loss.first_nat")["value"], losses.front());
    EXPECT_EQ(m.at("loss.min_nat")["value"], *std::ranges::min_element(losses));
    EXPECT_LT(m.at("loss.last20_nat")["value"].get<double>(), losses.front());
    EXPECT_EQ(m.at("grad.zero_count")["value"], 0);
  }
}

TEST_F(ProgramTest, APackedRunIsResumedBehindAStepWithoutTargets) {
  std::ofstream text(dir_ / "t.jsonl");
  for (int i = 0; i < 3000; ++i) text << R"({"text": "a"})" << "\n";
  text.close();
  ASSERT_EQ(shell(program("nsa-data") + " --in t.jsonl --out .data/letters > out"), 0);
  const std::string call = program("nsa-train") +
                           " --model small.json --data letters --packing --seq-len 1 --batch 1 "
                           "--warmup 2 --steps 24 --result ";
  const auto figures = [&](const std::string& result) {
    std::map<std::string, json> found;
    std::ifstream in(dir_ / result);
    for (std::string line; std::getline(in, line);)
      if (const json one = json::parse(line); one["type"] == "metric")
        found[one["name"]] = one["value"];
    return found;
  };
  ASSERT_EQ(shell(call + "whole 2> err"), 0) << slurp("err");
  for (int i = 0; i < 4; ++i)
    ASSERT_EQ(shell(call + "part" + std::to_string(i) +
                    " --checkpoints c --resume --slice-steps 6 2> err"),
              0)
        << slurp("err");
  for (const char* name : {"loss.first_nat", "loss.min_nat", "grad.zero_count", "steps.done_count"})
    EXPECT_EQ(figures("whole").at(name), figures("part3").at(name)) << name;
}

TEST_F(ProgramTest, RowsOfOneTokenTrain) {
  for (const std::string shape :
       {"--batch 1", "--batch 2", "--batch 1 --accum 3", "--batch 1 --packing"})
    for (const std::string length : {"1", "2"}) {
      const std::string call = kReadInPlace + program("nsa-train") +
                               " --model small.json --data synthetic --warmup 2 --steps 24 "
                               "--result r --seq-len " +
                               length + " " + shape + " 2> err";
      EXPECT_EQ(shell(call), 0) << call << "\n" << slurp("err");
    }
}

}  // namespace
}  // namespace nsa::train

// Packed documents over ranks and micro-batches: a step is the mean over its targets.
#include <algorithm>
#include <functional>
#include <tuple>

#include "nsa/train/ranks_testing.h"

namespace nsa::train {
namespace {

/// Loss of a step as reported.
struct PackedStep {
  double targets = 0, loss = 0, grad_norm = 0;  ///< loss -1: none
};

class PackedRanksTest : public RanksTest {
 protected:
  /// Documents of `length(i)` letters.
  void make_documents_of(const std::string& name, const std::function<int(int)>& length) {
    std::ofstream text(dir_ / "t.jsonl");
    for (int i = 0; i < 4000; ++i)
      text << json{{"text",
                    std::string(static_cast<size_t>(length(i)), static_cast<char>('a' + i % 26))}}
                  .dump()
           << "\n";
    text.close();
    ASSERT_EQ(shell(program("nsa-data") + " --in t.jsonl --out .data/" + name + " > out"), 0);
  }
  std::vector<PackedStep> train(int64_t world, const std::string& args) {
    const Port port;
    std::string command = "export NSA_NVTX=0; rm -f p p.rank*; s=0; ";
    for (int64_t rank = 0; rank < world; ++rank)
      command += start(rank, world, port,
                       "--model small.json --dtype fp64 --packing --warmup 2 --result p " + args);
    for (int64_t rank = 0; rank < world; ++rank)
      command += "wait $p" + std::to_string(rank) + " || s=1; ";
    EXPECT_EQ(shell(command + "exit $s"), 0) << slurp("err0");
    const auto steps = packed_steps("p");
    for (int64_t rank = 1; rank < world; ++rank)
      expect_near(packed_steps("p.rank" + std::to_string(rank)), steps, 0);
    return steps;
  }
  std::vector<PackedStep> packed_steps(const std::string& result) {
    std::vector<PackedStep> steps;
    for (const json& step : steps_of(lines_of(result))) {
      const json& extra = step["extra"];
      steps.push_back({extra.value("targets", -2.0), extra.value("loss", -1.0),
                       extra.at("grad_norm").get<double>()});
    }
    return steps;
  }
  static void expect_near(const std::vector<PackedStep>& a, const std::vector<PackedStep>& b,
                          double bound) {
    ASSERT_EQ(a.size(), b.size());
    ASSERT_GT(a.size(), 0u);
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].targets, b[i].targets) << i;
      EXPECT_NEAR(a[i].loss, b[i].loss, bound) << i;
      EXPECT_NEAR(a[i].grad_norm, b[i].grad_norm, bound) << i;
    }
  }
};

TEST_F(PackedRanksTest, AStepIsTheMeanOverItsTargetsHoweverItIsSpread) {
  make_documents_of("unlike", [](int i) { return i * i % 53 > 26 ? 1 : 1 + i * 37 % 61; });
  for (const std::string length : {"3", "16"}) {
    const std::string rest = "--data unlike --steps 4 --seq-len " + length;
    const auto want = train(1, rest + " --batch 6");
    for (const auto& [world, batch, accum] :
         {std::tuple{1, 2, 3}, {1, 1, 6}, {2, 3, 1}, {2, 1, 3}, {3, 2, 1}, {3, 1, 2}}) {
      const std::string shape =
          " --batch " + std::to_string(batch) + " --accum " + std::to_string(accum);
      SCOPED_TRACE(std::to_string(world) + " ranks" + shape + ", length " + length);
      expect_near(train(world, rest + shape), want, 1e-9);
    }
  }
}

/// Every second token ends a document: one rank, or all of them, often have nothing to learn from.
TEST_F(PackedRanksTest, RanksAndStepsWithoutTargetsTakePart) {
  make_documents_of("letters", [](int) { return 1; });
  const std::string rest = "--data letters --seq-len 1 --steps 40 ";
  const auto want = train(1, rest + "--batch 2");
  const auto with = [&](double targets) {
    return std::ranges::count(want, targets, &PackedStep::targets);
  };
  EXPECT_GT(with(0), 0);
  EXPECT_GT(with(1), 0);
  EXPECT_GT(with(2), 0);
  for (const PackedStep& step : want) EXPECT_EQ(step.loss == -1, step.targets == 0);
  expect_near(train(1, rest + "--batch 1 --accum 2"), want, 1e-9);
  expect_near(train(2, rest + "--batch 1"), want, 1e-9);
  expect_near(train(2, rest + "--batch 1 --shard optimizer"), want, 1e-9);
}

}  // namespace
}  // namespace nsa::train

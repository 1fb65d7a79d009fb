#include "harness/runbook/load.h"

#include "harness/runbook/testing.h"
#include "harness/schema/read.h"
#include "harness/schema/write.h"

namespace harness {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

const PhaseSpec& phase_of(const LoadedRunbook& book, const std::string& id) {
  for (const PhaseSpec& phase : book.runbook.phases)
    if (phase.id == id) return phase;
  throw std::runtime_error("no phase " + id);
}

TEST(Load, EveryShippedRunbookIsValid) {
  const auto names = list_runbooks(source_path("configs"));
  EXPECT_THAT(names, testing::IsSupersetOf(
                         {"single_a100", "single_gpu", "single_h100", "single_h200", "smoke_cpu"}));
  for (const std::string& name : names) {
    const LoadedRunbook book = load_runbook(name, source_path("configs"));
    EXPECT_EQ(book.runbook.name, name);
    EXPECT_TRUE(book.deviations.empty());
    EXPECT_GE(book.runbook.phases.size(), 1u);
    EXPECT_FALSE(book.runbook.answer.empty()) << name;
    EXPECT_FALSE(book.runbook.questions.empty()) << name;
  }
}

TEST(Load, SmokeCpuReportsItMakesNoGpuStatement) {
  EXPECT_THAT(load_runbook("smoke_cpu", source_path("configs")).runbook.scope,
              HasSubstr("no GPU statement"));
}

TEST(Load, ArgumentsAreFilledFromTheKind) {
  const LoadedRunbook book = TempConfigs().load(minimal_text());
  EXPECT_EQ(phase_of(book, "second").args["rounds"], 2);
  EXPECT_EQ(phase_of(book, "second").args["K"], 32);
  EXPECT_EQ(phase_of(book, "first").args["file"], "configs/ranges/cases.jsonl");
  EXPECT_EQ(book.kinds.size(), 2u);
}

TEST(Load, TheEffectiveRunbookReadsBackAsItself) {
  const LoadedRunbook book = load_runbook("single_h200", source_path("configs"));
  const std::string text = canonical_dump(to_json(book.runbook));
  EXPECT_EQ(canonical_dump(to_json(read_json<Runbook>(text, "runbook.json"))), text);
  EXPECT_EQ(book.runbook.extends, "");
}

TEST(Load, ExtendsMergesByPhaseAndCriterion) {
  const LoadedRunbook cpu = load_runbook("smoke_cpu", source_path("configs"));
  const LoadedRunbook gpu = load_runbook("single_h200", source_path("configs"));
  EXPECT_EQ(gpu.runbook.device, "cuda");
  EXPECT_EQ(gpu.runbook.hardware, "*H200*");
  const LoadedRunbook small = load_runbook("readiness_cpu", source_path("configs"));
  EXPECT_EQ(gpu.runbook.phases.size(), small.runbook.phases.size())
      << "the same steps, other sizes";
  EXPECT_EQ(small.runbook.phases.size(), cpu.runbook.phases.size() + 9);
  EXPECT_THAT(phase_of(gpu, "production").needs_criteria,
              testing::ElementsAre("C-operators.mismatch", "C-rate.proceed"));
  const CriterionSpec& before = phase_of(cpu, "ranges_ab").criteria[1];
  const CriterionSpec& after = phase_of(gpu, "ranges_ab").criteria[1];
  EXPECT_EQ(before.severity, Severity::kInfo);
  EXPECT_EQ(after.severity, Severity::kBlocker);
  EXPECT_EQ(after.metric, before.metric);
  EXPECT_EQ(phase_of(gpu, "ranges_ab").processes, 10);
  EXPECT_EQ(gpu.runbook.answer.size(), 5u) << "lists of plain values replace";
  EXPECT_EQ(gpu.runbook.questions.size(), cpu.runbook.questions.size() + 6) << "by id";
}

TEST(Load, ErrorsAfterMergingNameTheFileTheyStandIn) {
  TempConfigs configs;
  configs.write("runbooks/minimal.json", minimal_text());
  configs.write("runbooks/child.json",
                "{\"schema\": \"nsa-runbook/1\", \"name\": \"child\", \"extends\": \"minimal\",\n"
                " \"phases\": [{\"id\": \"first\",\n   \"args\": {\"fil\": \"x\"}}]}");
  const auto child = [&] { load_runbook("child", configs.dir()); };
  EXPECT_EQ(config_error_of(child),
            configs.runbook("child").string() +
                ":3:13: first.args: kind 'ranges_equivalence' declares no argument 'fil'; did you "
                "mean 'file'?");
  configs.write("runbooks/minimal.json",
                with(minimal_text(), "\"processes\": 8", "\"processes\": 0"));
  configs.write("runbooks/child.json",
                R"({"schema": "nsa-runbook/1", "name": "child", "extends": "minimal"})");
  EXPECT_THAT(config_error_of(child), StartsWith(configs.runbook("minimal").string() + ":22:"));
}

TEST(Load, ExtendsErrors) {
  TempConfigs configs;
  const auto extend = [&](const std::string& name, const std::string& base) {
    configs.write("runbooks/" + name + ".json", R"({"schema": "nsa-runbook/1", "name": ")" + name +
                                                    R"(", "extends": ")" + base + "\"}");
  };
  extend("a", "b");
  extend("b", "a");
  const auto load_a = [&] { load_runbook("a", configs.dir()); };
  EXPECT_THAT(config_error_of(load_a), HasSubstr("extend each other in a cycle: a -> b -> a"));
  extend("a", "a");
  EXPECT_THAT(config_error_of(load_a), HasSubstr("in a cycle: a -> a"));
  extend("a", "bb");
  EXPECT_THAT(config_error_of(load_a), HasSubstr("extends no runbook 'bb'"));
  extend("a", "../kinds/nsa-train");
  EXPECT_THAT(config_error_of(load_a), HasSubstr("extends no runbook"));
}

TEST(Load, MissingRunbooksNameTheNearest) {
  const auto load = [](const std::string& name) {
    return config_error_of([&] { load_runbook(name, source_path("configs")); });
  };
  EXPECT_THAT(load("smoke_gpu"), HasSubstr("no runbook 'smoke_gpu' in"));
  EXPECT_THAT(load("smoke_gpu"), HasSubstr("did you mean 'smoke_cpu'?"));
  EXPECT_THAT(load("./nowhere.json"), HasSubstr("runbook './nowhere.json': no such file"));
  EXPECT_THAT(load(source_path("configs").string() + "/"), HasSubstr("cannot be read"));
}

TEST(Load, APathIsReadWhereItLies) {
  TempConfigs configs;
  configs.write("elsewhere/minimal.json", minimal_text());
  const auto path = (configs.dir() / "elsewhere/minimal.json").string();
  EXPECT_EQ(load_runbook(path, configs.dir()).file, path);
}

TEST(Set, ChangesAreTypedAndRecorded) {
  const LoadedRunbook book =
      TempConfigs().load(minimal_text(), {"second.rounds=5", "first.file=a=b.c", "second.B=8"});
  EXPECT_EQ(phase_of(book, "second").args["rounds"], 5);
  EXPECT_EQ(phase_of(book, "first").args["file"], "a=b.c");
  EXPECT_EQ(phase_of(book, "second").args["B"], 8);
  ASSERT_EQ(book.deviations.size(), 2u) << "B is free";
  EXPECT_EQ(book.deviations[0].id, "D-set.second.rounds");
  EXPECT_EQ(book.deviations[0].what, "--set second.rounds=5 (runbook: 2)");
  EXPECT_EQ(book.deviations[1].id, "D-set.first.file");
}

TEST(Set, TheRunbooksOwnValueIsNoDeviation) {
  EXPECT_TRUE(TempConfigs().load(minimal_text(), {"second.rounds=2"}).deviations.empty());
}

TEST(Set, ErrorsNameTheNearest) {
  TempConfigs configs;
  const auto error = [&](const std::string& set) {
    return configs.error_of(minimal_text(), {set});
  };
  EXPECT_EQ(error("rounds=5"), "--set 'rounds=5' must be phase.key=value");
  EXPECT_EQ(error("second.rounds"), "--set 'second.rounds' must be phase.key=value");
  EXPECT_THAT(error("secnd.rounds=5"),
              HasSubstr("no phase 'secnd' in runbook 'minimal'; did you mean 'second'?"));
  EXPECT_THAT(error("second.round=5"),
              HasSubstr("declares no argument 'round'; did you mean 'rounds'?"));
  EXPECT_THAT(error("second.rounds=five"), HasSubstr("rounds must be an int, got '\"five\"'"));
  EXPECT_THAT(error("second.rounds=1.5"), HasSubstr("must be an int"));
  EXPECT_THAT(error("second.rounds=99999999999999999999"), HasSubstr("must be an int"));
  EXPECT_THAT(error("second.arms=" + std::string(100000, '[')), HasSubstr("must be a list"));
  EXPECT_THAT(configs.error_of(minimal_text(), {"second.rounds=5", "second.rounds=6"}),
              HasSubstr("second.rounds is set twice"));
}

}  // namespace
}  // namespace harness

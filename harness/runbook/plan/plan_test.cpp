#include "harness/runbook/plan/plan.h"

#include "harness/runbook/plan/graph.h"
#include "harness/runbook/testing.h"
#include "harness/schema/read.h"
#include "harness/schema/write.h"

namespace harness {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const Facts kCpuFacts = {{"gpu.count", 0}, {"data.local_text", true}, {"git.checkout", true}};
const Facts kGpuFacts = {
    {"gpu.count", 1}, {"gpu.sku", "NVIDIA H200"}, {"cupti.ok", true}, {"data.local_text", true}};

Plan plan_of(const std::string& runbook, const Facts& facts, const PhaseSelection& selection = {}) {
  return make_plan(load_runbook(runbook, source_path("configs")), facts, selection);
}

const PlannedPhase& phase_of(const Plan& plan, const std::string& id) {
  for (const PlannedPhase& phase : plan.phases)
    if (phase.id == id) return phase;
  throw std::runtime_error("no phase " + id);
}

std::vector<std::string> with_decision(const Plan& plan, Decision decision) {
  std::vector<std::string> ids;
  for (const PlannedPhase& phase : plan.phases)
    if (phase.decision == decision) ids.push_back(phase.id);
  return ids;
}

TEST(Plan, SmokeCpuRunsWhollyWithoutAGpu) {
  const Plan plan = plan_of("smoke_cpu", kCpuFacts);
  EXPECT_EQ(with_decision(plan, Decision::kRun).size(), plan.phases.size());
  EXPECT_THAT(plan.deviations, IsEmpty());
  EXPECT_GT(plan.minutes, 0.5);
  EXPECT_LT(plan.minutes, 4);
  for (const PlannedPhase& phase : plan.phases) EXPECT_THAT(phase.undecided, IsEmpty()) << phase.id;
}

TEST(Plan, EveryProcessIsPlannedWithItsSeed) {
  const Plan plan = plan_of("smoke_cpu", kCpuFacts);
  const PlannedPhase& ab = phase_of(plan, "ranges_ab");
  ASSERT_EQ(ab.groups.size(), 10u);
  EXPECT_EQ(ab.groups[0].id, "g01");
  EXPECT_EQ(ab.groups[9].id, "g10");
  EXPECT_EQ(ab.mode, "time");
  EXPECT_EQ(ab.program, "nsa-worker");
  EXPECT_EQ(ab.kind, "ranges_ab");
  ASSERT_EQ(ab.cases.size(), 1u);
  EXPECT_EQ(ab.cases[0].id, "ranges_ab");
  std::set<int64_t> seeds;
  for (const PlannedPhase& phase : plan.phases)
    for (const PlannedGroup& group : phase.groups) EXPECT_TRUE(seeds.insert(group.seed).second);
  EXPECT_EQ(phase_of(plan, "oracle").filter.empty(), false);
}

TEST(Plan, SeedsAreTheDocumentedHash) {
  // Computed apart with arbitrary-precision integers: FNV-1a-64 of "p/g01", plus 1, splitmix64.
  EXPECT_EQ(group_seed(1, "p", "g01"), 4056753075274164);
  EXPECT_NE(group_seed(2, "p", "g01"), group_seed(1, "p", "g01"));
  EXPECT_LT(group_seed(INT64_MAX, "p", "g01"), int64_t{1} << 53);
}

PhaseSpec bare_phase(const std::string& id, const std::vector<std::string>& needs) {
  PhaseSpec phase;
  phase.id = id;
  phase.needs = needs;
  return phase;
}

TEST(Plan, NeedsComeFirst) {
  Runbook runbook;
  runbook.phases = {bare_phase("c", {"b"}), bare_phase("a", {}), bare_phase("b", {"a"})};
  EXPECT_THAT(order_phases(runbook).order, ElementsAre(1, 2, 0));
  runbook.phases[1].needs = {"c"};
  EXPECT_THAT(order_phases(runbook).order, IsEmpty());
  EXPECT_THAT(order_phases(runbook).cycle, ElementsAre(0, 2, 1));
}

TEST(Plan, PhasesOfNeededCriteriaComeFirst) {
  Runbook runbook;
  runbook.phases = {bare_phase("c", {}), bare_phase("a", {}), bare_phase("b", {})};
  runbook.phases[0].needs_criteria = {"C-a.fast"};
  CriterionSpec& fast = runbook.phases[1].criteria.emplace_back();
  fast.id = "C-a.fast";
  fast.metric = "b.speed.rate_tok_s";
  EXPECT_THAT(phases_before(runbook, runbook.phases[0]), ElementsAre("a", "b"));
  EXPECT_THAT(order_phases(runbook).order, ElementsAre(1, 2, 0));
  runbook.phases[2].needs = {"c"};
  EXPECT_THAT(order_phases(runbook).cycle, ElementsAre(0, 2));
}

TEST(Plan, APhaseBehindACriterionThatIsNotDecidedDoesNotRun) {
  TempConfigs configs;
  auto document = minimal_json();
  document["phases"][1].erase("needs");
  document["phases"][1]["needs_criteria"] = {"C-first.v2"};
  EXPECT_THAT(
      phase_of(make_plan(configs.load(document.dump()), kCpuFacts), "second").needs_criteria,
      ElementsAre("C-first.v2"));
  document["phases"][0]["require"] = {{"gpu.count", ">=1"}};
  document["phases"][0]["on_unmet"] = "fail";
  const Plan failing = make_plan(configs.load(document.dump()), kCpuFacts);
  EXPECT_EQ(phase_of(failing, "second").cause, "UPSTREAM");
}

TEST(Plan, WithoutAGpuTheRequiredPhasesAreDeferred) {
  const Plan plan = plan_of("single_gpu", kCpuFacts);
  EXPECT_THAT(with_decision(plan, Decision::kRun),
              ElementsAre("environment", "selftest", "checkout", "configuration"));
  const PlannedPhase& train = phase_of(plan, "smoke");
  EXPECT_EQ(train.decision, Decision::kDefer);
  EXPECT_EQ(train.required, Required::kAlways);
  EXPECT_EQ(train.cause, "GPU_COUNT");
  EXPECT_THAT(train.reason, HasSubstr("gpu.count is 0, want >=1"));
  EXPECT_EQ(train.minutes, 0);
  EXPECT_THAT(train.decides, IsEmpty());
  EXPECT_EQ(train.undecided.size(), 8u);
}

TEST(Plan, OnAGpuEverythingRuns) {
  const Plan plan = plan_of("single_gpu", kGpuFacts);
  EXPECT_EQ(with_decision(plan, Decision::kRun).size(), plan.phases.size());
  EXPECT_THAT(plan.deviations, IsEmpty());
  EXPECT_EQ(phase_of(plan, "operators").device, "cuda");
}

TEST(Plan, APhaseMayNameItsDeviceAndItsMinutes) {
  TempConfigs configs;
  auto document = minimal_json();
  document["device"] = "cuda";
  document["phases"][1]["device"] = "cpu";
  document["phases"][1]["minutes"] = 3;
  document["phases"][1].erase("needs");
  const auto book = configs.load(document.dump());
  const Plan plan = make_plan(book, kCpuFacts);
  EXPECT_EQ(phase_of(plan, "first").device, "cuda");
  EXPECT_EQ(phase_of(plan, "first").decision, Decision::kDefer);
  EXPECT_EQ(phase_of(plan, "second").device, "cpu");
  EXPECT_EQ(phase_of(plan, "second").decision, Decision::kRunWithDeviation) << "its own warn";
  EXPECT_EQ(phase_of(plan, "second").minutes, 24) << "eight processes";
  for (const MetricSpec& metric : book.kinds.at("ranges_ab").metrics)
    EXPECT_NE(metric.device, "cuda") << metric.name << " exists on no device of this runbook";
}

TEST(Plan, OtherHardwareThanExpectedIsADeviation) {
  EXPECT_THAT(plan_of("single_h200", kGpuFacts).deviations, IsEmpty());
  for (const auto& [runbook, card] :
       {std::pair<std::string, std::string>{"single_a100", "*A100*"}, {"single_h100", "*H100*"}}) {
    const Plan plan = plan_of(runbook, kGpuFacts);
    ASSERT_EQ(plan.deviations.size(), 1u);
    EXPECT_EQ(plan.deviations[0].id, "D-hardware");
    EXPECT_EQ(plan.deviations[0].what, "runbook expects hardware '" + card + "'");
    EXPECT_THAT(plan.deviations[0].why, HasSubstr("gpu.sku is NVIDIA H200, want " + card));
  }
  EXPECT_EQ(plan_of("single_a100", {{"gpu.count", 1}}).deviations.size(), 1u) << "unknown card";
}

TEST(Plan, MissingDataDefersWithTheRemedy) {
  Facts facts = kCpuFacts;
  facts.erase("data.local_text");
  const PlannedPhase phase = phase_of(plan_of("smoke_cpu", facts), "train_text");
  EXPECT_EQ(phase.decision, Decision::kDefer);
  EXPECT_EQ(phase.cause, "DATA_MISSING");
  EXPECT_THAT(phase.reason, HasSubstr("supply the data set"));
}

TEST(Plan, AProgramKnownToBeMissingDefers) {
  Facts facts = kCpuFacts;
  facts["program.nsa-train"] = false;
  const Plan plan = plan_of("smoke_cpu", facts);
  EXPECT_THAT(with_decision(plan, Decision::kDefer), ElementsAre("train_text", "train_random"));
  EXPECT_EQ(phase_of(plan, "train_text").cause, "PROGRAM_MISSING");
}

TEST(Plan, SkippedPhasesAreDeviationsAndTheirDependantsReportWhy) {
  const Plan plan = plan_of("smoke_cpu", kCpuFacts, {.only = {}, .skip = {"operators"}});
  EXPECT_EQ(phase_of(plan, "operators").cause, "SKIPPED");
  const PlannedPhase& train = phase_of(plan, "train_text");
  EXPECT_EQ(train.decision, Decision::kSkip);
  EXPECT_EQ(train.cause, "SKIPPED") << "what needs it is left out with it";
  EXPECT_EQ(train.reason, "needs 'operators', which does not run: left out by --skip operators");
  ASSERT_EQ(plan.deviations.size(), 1u);
  EXPECT_EQ(plan.deviations[0].id, "D-skip.operators");
}

TEST(Plan, OnlyRunsWhatTheNamedPhasesNeedToo) {
  const Plan plan =
      plan_of("smoke_cpu", kCpuFacts, {.only = {"oracle", "gate_health"}, .skip = {}});
  EXPECT_THAT(with_decision(plan, Decision::kRun),
              testing::IsSupersetOf({"environment", "oracle", "gate_health"}));
  EXPECT_THAT(plan.added, testing::Contains("environment"));
  EXPECT_THAT(plan.added, testing::Not(testing::Contains("oracle")));
  EXPECT_EQ(phase_of(plan, "train_text").reason, "left out by --only oracle, gate_health")
      << "as it was asked for";
}

/// third needs second by a criterion, second needs first by name.
TEST(Plan, NeedsAreFollowedThroughCriteriaToo) {
  TempConfigs configs;
  LoadedRunbook book = configs.load(minimal_text());
  PhaseSpec first = book.runbook.phases.front();
  first.needs.clear(), first.needs_criteria.clear(), first.criteria.clear(), first.require.clear();
  PhaseSpec second = first, third = first;
  first.id = "first", second.id = "second", third.id = "third";
  second.needs = {"first"};
  second.criteria.emplace_back().id = "C-second";
  second.criteria.front().metric = "second.x_count";
  third.needs_criteria = {"C-second"};
  book.runbook.phases = {first, second, third};
  EXPECT_THAT(make_plan(book, kCpuFacts, {.only = {"third"}, .skip = {}}).added,
              ElementsAre("first", "second"));
  EXPECT_THAT(
      config_error_of([&] { make_plan(book, kCpuFacts, {.only = {"third"}, .skip = {"first"}}); }),
      HasSubstr("leave no phase"))
      << "--skip wins";
}

TEST(Plan, OnlyLeavesOutTheOthers) {
  const Plan plan =
      plan_of("smoke_cpu", kCpuFacts, {.only = {"environment", "selftest"}, .skip = {}});
  EXPECT_THAT(with_decision(plan, Decision::kRun), ElementsAre("environment", "selftest"));
  EXPECT_EQ(plan.deviations.size(), plan.phases.size() - 2);
  EXPECT_THAT(phase_of(plan, "oracle").undecided, ElementsAre("C-oracle.run", "C-oracle.failed"));
}

TEST(Plan, SelectionErrors) {
  const auto error = [](const PhaseSelection& selection) {
    return config_error_of([&] { plan_of("smoke_cpu", kCpuFacts, selection); });
  };
  EXPECT_THAT(
      error({.only = {"opertors"}, .skip = {}}),
      HasSubstr(
          "--only 'opertors': no such phase in runbook 'smoke_cpu'; did you mean 'operators'?"));
  EXPECT_THAT(error({.only = {}, .skip = {"zzz"}}), HasSubstr("--skip 'zzz'"));
  EXPECT_THAT(error({.only = {"oracle"}, .skip = {"oracle"}}), HasSubstr("leave no phase"));
}

TEST(Plan, OnUnmetDecidesWhatHappens) {
  TempConfigs configs;
  const auto plan = [&](const std::string& on_unmet) {
    const auto book = configs.load(with(minimal_text(), "\"warn\"", "\"" + on_unmet + "\""));
    return make_plan(book, kCpuFacts);
  };
  const Plan warned = plan("warn");
  EXPECT_EQ(phase_of(warned, "second").decision, Decision::kRunWithDeviation);
  EXPECT_THAT(phase_of(warned, "second").decides, ElementsAre("C-second.faster"));
  ASSERT_EQ(warned.deviations.size(), 1u);
  EXPECT_EQ(warned.deviations[0].id, "D-require.second");
  EXPECT_THAT(warned.deviations[0].why, HasSubstr("gpu.free_mib is unknown"));
  EXPECT_EQ(phase_of(plan("fail"), "second").decision, Decision::kFail);
  EXPECT_EQ(phase_of(plan("defer"), "second").decision, Decision::kDefer);
}

TEST(Plan, BaselineCriteriaNeedABaseline) {
  TempConfigs configs;
  const auto book = configs.load(
      with(minimal_text(), "\"value\": 1.5, \"source\": \"historical: 855\"",
           R"("value": {"baseline": "second.v2_vs_v1.speedup_ratio", "factor": 0.9})"));
  EXPECT_THAT(phase_of(make_plan(book, {}), "second").undecided, ElementsAre("C-second.faster"));
  EXPECT_THAT(phase_of(make_plan(book, {{"baseline.ok", true}}), "second").decides,
              ElementsAre("C-second.faster"));
}

TEST(Plan, IsAFileThatReadsBackAsItself) {
  const Plan plan = plan_of("single_a100", kGpuFacts);
  const std::string text = pretty_dump(to_json(plan));
  EXPECT_EQ(pretty_dump(to_json(read_json<Plan>(text, "plan.json"))), text);
}

TEST(Plan, FurtherLooksAndTheConfirmationArePlannedBeforehand) {
  LoadedRunbook book = load_runbook("ab_control", source_path("configs"));
  PhaseSpec& spec = book.runbook.phases.front();
  spec.max_processes = 45;
  spec.confirm = true;
  const PlannedPhase phase = make_plan(book, kCpuFacts).phases.front();
  ASSERT_EQ(phase.further.size(), 3u);
  EXPECT_EQ(phase.further[0].id, "look2");
  EXPECT_EQ(phase.further[0].groups.front().id, "g11");
  EXPECT_EQ(phase.further[1].id, "look3");
  EXPECT_EQ(phase.further[1].groups.back().id, "g40") << "45 leaves no room for 80";
  EXPECT_EQ(phase.further[2].id, "confirm");
  EXPECT_EQ(phase.further[2].groups.size(), 40u);
  std::set<int64_t> seeds;
  for (const PlannedGroup& group : phase.groups) EXPECT_TRUE(seeds.insert(group.seed).second);
  for (const PlannedStage& stage : phase.further)
    for (const PlannedGroup& group : stage.groups) EXPECT_TRUE(seeds.insert(group.seed).second);
  spec.max_processes = 0;
  spec.confirm = false;
  EXPECT_THAT(make_plan(book, kCpuFacts).phases.front().further, IsEmpty());
}

}  // namespace
}  // namespace harness

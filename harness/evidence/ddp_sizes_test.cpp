// Runbook ddp_multi_gpu on machines with 0 to 8 GPUs: what is asked of each, and how far its
// verdict goes.
#include <gmock/gmock.h>

#include <algorithm>

#include "base/testing/paths.h"
#include "harness/runbook/load.h"
#include "harness/runbook/plan/plan.h"
#include "harness/verdict/verdict.h"

namespace harness {
namespace {

using testing::HasSubstr;
using testing::Not;

/// A run in which every phase that could run passed.
struct RunOfSize {
  LoadedRunbook book =
      load_runbook("ddp_multi_gpu", std::filesystem::path(base::source_dir()) / "configs");
  std::vector<PhaseResult> phases;
  std::vector<CriterionResult> criteria;
  int64_t gpus;

  explicit RunOfSize(int64_t count, bool data = true) : gpus(count) {
    const Plan plan = make_plan(book, {{"gpu.count", count}, {"data.local_text", data}});
    for (const PlannedPhase& planned : plan.phases) add(planned);
  }

  void add(const PlannedPhase& planned) {
    const bool runs = planned.decision == Decision::kRun;
    PhaseResult phase;
    phase.id = "P-" + planned.id;
    phase.name = planned.id;
    phase.required = planned.required;
    phase.status =
        runs ? StepStatus::kCompleted
             : (planned.decision == Decision::kDefer ? StepStatus::kDeferred : StepStatus::kNotRun);
    phase.cause = planned.cause;
    phases.push_back(phase);
    const auto spec = std::ranges::find(book.runbook.phases, planned.id, &PhaseSpec::id);
    for (const CriterionSpec& one : spec->criteria) {
      CriterionResult c;
      c.id = one.id;
      c.phase = planned.id;
      c.severity = one.severity;
      c.verdict = runs ? CriterionVerdict::kPass : CriterionVerdict::kNotEvaluated;
      criteria.push_back(c);
    }
  }

  Verdict verdict() const {
    return decide({.phases = phases,
                   .criteria = criteria,
                   .deviations = {},
                   .faults = {},
                   .evidence_ok = true,
                   .scope = book.runbook.scope,
                   .gpus = gpus});
  }
};

TEST(DdpSizes, TwoGpusAreDecidedForTwo) {
  const Verdict two = RunOfSize(2).verdict();
  EXPECT_EQ(two.word, "GO") << two.rule;
  EXPECT_THAT(two.scope,
              HasSubstr("Decided for 2 GPUs; no statement about more (scale_4, scale_8)."));
  EXPECT_THAT(RunOfSize(4).verdict().scope,
              HasSubstr("Decided for 4 GPUs; no statement about more (scale_8)."));
  EXPECT_THAT(RunOfSize(8).verdict().scope, Not(HasSubstr("no statement about more")));
  EXPECT_EQ(RunOfSize(8).verdict().word, "GO");
}

TEST(DdpSizes, FewerThanTwoGpusAreNeverGo) {
  for (const int64_t gpus : {0, 1}) EXPECT_EQ(RunOfSize(gpus).verdict().exit, 7) << gpus;
}

TEST(DdpSizes, WithoutDataNoSizeIsDecided) {
  for (const int64_t gpus : {0, 1, 2, 4, 8})
    EXPECT_EQ(RunOfSize(gpus, /*data=*/false).verdict().exit, 5) << gpus;
}

TEST(DdpSizes, EveryBlockerOfASizeThatIsThereDecides) {
  for (const int64_t gpus : {2, 4, 8}) {
    RunOfSize run(gpus);
    for (CriterionResult& c : run.criteria) {
      if (c.severity != Severity::kBlocker || c.verdict != CriterionVerdict::kPass) continue;
      c.verdict = CriterionVerdict::kFail;
      EXPECT_EQ(run.verdict().exit, 1) << c.id << " on " << gpus;
      c.verdict = CriterionVerdict::kNotEvaluated;
      EXPECT_EQ(run.verdict().exit, 4) << c.id << " on " << gpus;
      c.verdict = CriterionVerdict::kPass;
    }
  }
}

}  // namespace
}  // namespace harness

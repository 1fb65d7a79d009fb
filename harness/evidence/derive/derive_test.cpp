#include "harness/evidence/derive/derive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/testing/paths.h"
#include "harness/evidence/mini_run.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/packed_run.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/evidence/storage/testing.h"

namespace harness {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

template <class T>
const T& by_id(const std::vector<T>& items, const std::string& id) {
  for (const T& item : items)
    if (item.id == id) return item;
  throw std::runtime_error("no " + id);
}

/// Derives a mini run after `change` was done to its folder.
template <class Change>
Derived derived_after(const MiniRun& injected, Change change) {
  TempDir dir;
  write_mini_run(dir.path(), injected);
  change(dir.path());
  return derive_all(RunFolder(dir.path()));
}

Derived derived(const MiniRun& injected = {}) {
  return derived_after(injected, [](const fs::path&) {});
}

TEST(Derive, MiniRunIsGo) {
  const Derived d = derived();
  EXPECT_THAT(d.problems, IsEmpty());
  EXPECT_EQ(d.results.verdict.word, "GO") << d.results.verdict.rule;
  EXPECT_EQ(d.results.verdict.exit, 0);
  const Metric& speedup = by_id(d.results.metrics, "M-speed.v2_vs_v1.speedup_ratio");
  EXPECT_EQ(speedup.details["candidate"].value("setting", ""), "MINI_V2=1");
  EXPECT_FALSE(speedup.details["baseline"].contains("setting"));
  EXPECT_NEAR(speedup.value.value(), 2, 0.01);
  EXPECT_EQ(speedup.n, 8);
  EXPECT_THAT(speedup.samples, testing::SizeIs(8));
  EXPECT_EQ(by_id(d.results.metrics, "M-conform.oracle.checks_count").value, 6);
  EXPECT_EQ(by_id(d.results.metrics, "M-conform.rows_count").value, 64);
  const PhaseResult& conform = by_id(d.results.phases, "P-conform");
  EXPECT_EQ(conform.cases_planned, 2);
  EXPECT_EQ(conform.cases_ok, 2);
  EXPECT_EQ(by_id(d.results.phases, "P-cards").status, StepStatus::kDeferred);
  EXPECT_EQ(by_id(d.results.phases, "P-speed").cases[2].id, "g03/speed");
}

/// A case of two ranks counts once, and only when both ended it ok.
TEST(Derive, ACaseOfSeveralRanksCountsOnce) {
  const fs::path sample = fs::path(base::source_dir()) / "reports/samples/ddp_multi_gpu-h200x2";
  const auto scale_2 = [](const fs::path& dir) {
    return by_id(derive_all(RunFolder(dir)).results.phases, "P-scale_2");
  };
  EXPECT_EQ(scale_2(sample).cases_planned, 1);
  EXPECT_EQ(scale_2(sample).cases_ok, 1);
  TempDir dir;
  fs::copy(sample, dir.path(), fs::copy_options::recursive);
  unpack_run(dir.path());
  const fs::path file = dir.path() / "phases/scale_2/g01.r1.jsonl";
  std::string text = read_bytes(file);
  const std::string ok = R"("status":"ok")";
  ASSERT_NE(text.rfind(ok), std::string::npos);
  text.replace(text.rfind(ok), ok.size(), R"("reason":"it broke","status":"failed")");
  std::ofstream(file, std::ios::binary) << text;
  EXPECT_EQ(scale_2(dir.path()).cases_ok, 0);
}

/// Phase speed of the mini run behind C-CONFORM.
void put_behind_criterion(const fs::path& dir, const std::string& id) {
  nlohmann::json plan = nlohmann::json::parse(read_bytes(dir / "plan.json"));
  for (auto& phase : plan["phases"])
    if (phase["id"] == "speed") phase["needs_criteria"] = {id};
  write_bytes(dir / "plan.json", plan.dump());
}

TEST(Derive, WhetherAPhaseRanFollowsFromTheCriteriaItNeeds) {
  const auto problems = [](bool mismatch, const std::string& status) {
    return derived_after({.mismatch = mismatch},
                         [&](const fs::path& dir) {
                           put_behind_criterion(dir, "C-CONFORM");
                           if (status == "NOT_RUN")
                             write_bytes(dir / "phases/speed/phase.json",
                                         R"({"phase": "speed", "status": "NOT_RUN", "cause":
                                             "CRITERIA", "reason": "needs C-CONFORM"})");
                         })
        .problems;
  };
  EXPECT_THAT(problems(false, "COMPLETED"), IsEmpty());
  EXPECT_THAT(problems(true, "NOT_RUN"), IsEmpty());
  ASSERT_EQ(problems(true, "COMPLETED").size(), 1U);
  EXPECT_THAT(problems(true, "COMPLETED")[0].what(),
              HasSubstr("the phase ran, but it needs C-CONFORM, which is FAIL"));
  ASSERT_EQ(problems(false, "NOT_RUN").size(), 1U);
  EXPECT_THAT(problems(false, "NOT_RUN")[0].what(), HasSubstr("every criterion it needs PASSes"));
}

TEST(Derive, SettingsTablesAndArtifactsComeFromTheRun) {
  const Results r = derived().results;
  ASSERT_EQ(r.settings.size(), 2U);
  EXPECT_EQ(r.settings[0].name, "NSA_SEL_RANGES_V2");
  EXPECT_EQ(r.settings[0].origin, "config");
  ASSERT_EQ(r.tables.size(), 2U);
  EXPECT_EQ(r.tables[0]["id"], "conform.shapes");
  EXPECT_EQ(r.tables[1]["id"], "versions");
  EXPECT_EQ(by_id(r.artifacts, "A-phases.speed.g01.jsonl").by, "phase speed");
  EXPECT_EQ(by_id(r.artifacts, "A-run.json").by, "engine");
}

TEST(Derive, SameFilesGiveSameBytes) {
  TempDir dir;
  write_mini_run(dir / "a", {});
  write_mini_run(dir / "b", {});
  const std::string first = results_text(derive(dir / "a"));
  EXPECT_EQ(first, results_text(derive(dir / "a")));
  EXPECT_EQ(first, results_text(derive(dir / "b")));
}

TEST(Derive, ResultsReadBackEqual) {
  TempDir dir;
  const Written written = finish_mini_run(dir.path());
  EXPECT_EQ(results_text(read_results(RunFolder(dir.path()))), results_text(written.results));
}

TEST(Derive, ResultsOfAnUnknownSchemaAreRefusedWithTheRemedy) {
  const TempDir dir;
  finish_mini_run(dir.path());
  std::string text = read_bytes(dir / "results.json");
  const std::string now(kResultsSchema);
  text.replace(text.find(now), now.size(), "nsa-results/9");
  write_bytes(dir / "results.json", text);
  EXPECT_THAT(error_of([&] { read_results(RunFolder(dir.path())); }),
              testing::AllOf(HasSubstr("results.json: has the schema 'nsa-results/9'"),
                             HasSubstr("`report DIR` renders it again")));
}

TEST(Derive, MismatchFailsTheCriterionAndIsAFinding) {
  const Results r = derived({.mismatch = true}).results;
  EXPECT_EQ(by_id(r.criteria, "C-CONFORM").verdict, CriterionVerdict::kFail);
  EXPECT_EQ(r.verdict.exit, 1);
  const Finding& finding = by_id(r.findings, "F-conform.ORACLE_MISMATCH");
  EXPECT_THAT(finding.symptom,
              HasSubstr("1 check failed, first oracle.sel in case odd: worst element 0.5"));
  EXPECT_EQ(finding.fact, "P-conform");
}

TEST(Derive, TooLittleSpeedupFails) {
  const Results r = derived({.speedup = 1.2}).results;
  EXPECT_EQ(by_id(r.criteria, "C-SPEED").verdict, CriterionVerdict::kFail);
  EXPECT_EQ(r.verdict.exit, 1);
}

TEST(Derive, SkippedPhaseIsNotEvaluatedAndNeverGo) {
  const Results r = derived({.conform_runs = false}).results;
  EXPECT_EQ(by_id(r.phases, "P-conform").status, StepStatus::kNotRun);
  EXPECT_EQ(by_id(r.criteria, "C-CONFORM").verdict, CriterionVerdict::kNotEvaluated);
  EXPECT_EQ(r.verdict.word, "PARTIAL");
  EXPECT_EQ(r.verdict.exit, 8);
}

TEST(Derive, DeletedSamplesAreEvidenceProblems) {
  const Derived d =
      derived_after({}, [](const fs::path& run) { fs::remove(run / "phases/speed/g03.jsonl"); });
  ASSERT_EQ(d.problems.size(), 1U);
  EXPECT_EQ(d.problems[0].file(), "phases/speed/g03.jsonl");
  EXPECT_EQ(d.results.verdict.exit, 6);
  EXPECT_EQ(by_id(d.results.findings, "F-evidence.phases/speed/g03.jsonl").code,
            "EVIDENCE_DAMAGED");
}

TEST(Derive, CutRawFileIsAnEvidenceProblem) {
  for (const uintmax_t cut : {1, 40, 300}) {
    const Derived d = derived_after({}, [&](const fs::path& run) {
      const fs::path file = run / "phases/conform/g01.jsonl";
      fs::resize_file(file, fs::file_size(file) - cut);
    });
    ASSERT_EQ(d.problems.size(), 1U) << cut;
    EXPECT_EQ(d.problems[0].file(), "phases/conform/g01.jsonl");
    EXPECT_THAT(d.problems[0].message(), HasSubstr("phase.json records COMPLETED"));
    EXPECT_EQ(by_id(d.results.criteria, "C-CONFORM").verdict, CriterionVerdict::kNotEvaluated);
    EXPECT_EQ(d.results.verdict.exit, 6);
  }
}

TEST(Derive, AnInputThatAProcessWroteOverIsAnEvidenceProblem) {
  const Derived d = derived_after({}, [](const fs::path& run) {
    fs::create_directories(run / "rewritten");
    write_bytes(run / "rewritten/plan.json", "{}");
  });
  ASSERT_EQ(d.problems.size(), 1U);
  EXPECT_EQ(d.problems[0].file(), "plan.json");
  EXPECT_THAT(d.problems[0].what(), HasSubstr("was changed while the run went on"));
  EXPECT_EQ(d.results.verdict.word, "NO-GO (evidence)");
  EXPECT_EQ(d.results.verdict.exit, 6);
}

TEST(Derive, MissingOrCutPhaseRecordIsAnEvidenceProblem) {
  const Derived missing =
      derived_after({}, [](const fs::path& run) { fs::remove(run / "phases/conform/phase.json"); });
  ASSERT_EQ(missing.problems.size(), 1U);
  EXPECT_THAT(missing.problems[0].what(),
              HasSubstr("phases/conform/phase.json: is missing: the phase did not end"));
  EXPECT_EQ(missing.results.verdict.exit, 6);
  const Derived cut = derived_after(
      {}, [](const fs::path& run) { fs::resize_file(run / "phases/conform/phase.json", 20); });
  EXPECT_THAT(cut.problems[0].what(), HasSubstr("cut off before its end"));
}

TEST(Derive, DamagedRunFilesAreErrorsNamingThem) {
  for (const char* file :
       {"run.json", "runbook.json", "kinds.json", "plan.json", "environment.json"}) {
    try {
      derived_after({}, [&](const fs::path& run) {
        fs::resize_file(run / file, fs::file_size(run / file) / 2);
      });
      ADD_FAILURE() << file;
    } catch (const EvidenceError& e) {
      EXPECT_EQ(e.file(), file);
      EXPECT_THAT(e.what(), HasSubstr("line"));
    }
  }
}

TEST(Derive, AnEnvironmentWithAListForASectionIsAnError) {
  for (const char* text : {R"({"build": []})", R"({"gpu": [1]})", R"({"machine": "x"})", "[]"}) {
    try {
      derived_after({}, [&](const fs::path& run) { write_bytes(run / "environment.json", text); });
      ADD_FAILURE() << text;
    } catch (const EvidenceError& e) {
      EXPECT_EQ(e.file(), "environment.json");
      EXPECT_THAT(e.what(), HasSubstr("not an object"));
    }
  }
}

TEST(Derive, AnErrorQuotesNoMoreThanCanBeRead) {
  const auto found = derived_after({}, [](const fs::path& run) {
    write_bytes(run / "phases/conform/phase.json",
                R"({"status": ")" + std::string(5000, 'x') + R"("})");
  });
  ASSERT_FALSE(found.problems.empty());
  EXPECT_LT(std::string(found.problems[0].what()).size(), 400u);
}

TEST(Derive, AnotherRunbookThanRunJsonNamesIsAnError) {
  try {
    derived_after({}, [](const fs::path& run) {
      std::ofstream(run / "runbook.json", std::ios::app) << "\n";
    });
    ADD_FAILURE();
  } catch (const EvidenceError& e) {
    EXPECT_STREQ(e.what(), "runbook.json: is not the runbook that run.json names (sha256 differs)");
  }
}

TEST(Derive, HostileTextsSurvive) {
  const std::string hostile = "|`<script>\n\x1b[31m\xff\xfe\"\\";
  const Results r = derived({.case_reason = hostile}).results;
  const std::string text = results_text(r);
  EXPECT_TRUE(nlohmann::json::accept(text));
  EXPECT_THAT(by_id(r.phases, "P-conform").cases[1].reason, HasSubstr("<script>"));
  EXPECT_EQ(by_id(r.phases, "P-conform").cases[1].status, "failed");
}

TEST(Derive, WorkerOfAnotherBuildIsADeviationAndAFinding) {
  const Results r = derived_after({}, [](const fs::path& run) {
                      write_bytes(run / "environment.json", R"({"build": {"build_id": "other"}})");
                    }).results;
  EXPECT_EQ(by_id(r.findings, "F-speed.PROVENANCE_MISMATCH").fact, "P-speed");
  EXPECT_THAT(by_id(r.deviations, "D-build.speed").what, HasSubstr("mini-build"));
  EXPECT_EQ(r.verdict.exit, 7);
}

TEST(Derive, ALibraryBuiltForDebuggingIsADeviation) {
  const auto with = [](const std::string& library) {
    return derived_after({},
                         [&](const fs::path& run) {
                           const fs::path file = run / "phases/speed/g01.jsonl";
                           std::string lines = read_bytes(file);
                           const std::string recorded = R"("mini":"1.0")";
                           lines.replace(lines.find(recorded), recorded.size(), library);
                           write_bytes(file, lines);
                         })
        .results;
  };
  const Results debug = with(R"("Google Benchmark":"debug build")");
  EXPECT_THAT(by_id(debug.deviations, "D-library.speed").what, HasSubstr("Google Benchmark"));
  EXPECT_EQ(debug.verdict.exit, 7);
  EXPECT_THAT(with(R"("Google Benchmark":"release build")").deviations, IsEmpty());
}

TEST(Derive, AFailedCheckThatNoCriterionJudgesIsADeviation) {
  const auto with = [](const std::string& code) {
    return derived_after(
               {},
               [&](const fs::path& run) {
                 const fs::path file = run / "phases/conform/g01.jsonl";
                 std::string lines = read_bytes(file);
                 const size_t at = lines.find(R"("type":"check")"),
                              begin = lines.rfind('\n', at) + 1;
                 auto check =
                     nlohmann::json::parse(lines.substr(begin, lines.find('\n', at) - begin));
                 check["id"] = "unasked/row", check["ok"] = false, check["code"] = code;
                 check["detail"] = "of no criterion";
                 lines.insert(begin, check.dump() + "\n");
                 const std::string count = R"("lines":)";
                 const size_t digits = lines.rfind(count) + count.size();
                 const int64_t was = std::stoll(lines.substr(digits));
                 lines.replace(digits, std::to_string(was).size(), std::to_string(was + 1));
                 write_bytes(file, lines);
               })
        .results;
  };
  const Results unjudged = with("INVARIANT_VIOLATED");
  EXPECT_THAT(by_id(unjudged.deviations, "D-checks.conform.INVARIANT_VIOLATED").what,
              testing::AllOf(HasSubstr("judged by no criterion: 1 check failed"),
                             HasSubstr("unasked/row in case even: of no criterion")));
  EXPECT_EQ(unjudged.verdict.exit, 7) << unjudged.verdict.rule;
  EXPECT_THAT(with("MEMORY_GROWS").deviations, IsEmpty());                 // a finding for later
  EXPECT_THAT(derived({.mismatch = true}).results.deviations, IsEmpty());  // C-CONFORM fails
}

TEST(Derive, HistoryIsTheRunbooks) {
  const Results r = derived().results;
  ASSERT_EQ(r.history.size(), 1U);
  EXPECT_EQ(r.history[0]["metric"], "speed.v2_vs_v1.speedup_ratio");
  EXPECT_EQ(r.history[0]["value"], 1.8);
}

TEST(Derive, NextStepsNameTheRunbookThatRan) {
  const Results r = derived().results;
  ASSERT_EQ(r.next_steps.size(), 1U);
  EXPECT_EQ(r.next_steps[0].command, "nsa-validate --runbook mini");
}

/// A mini run whose phase `conform` ended as in `record`, its processes as in `groups`.
Results with_groups(nlohmann::json record, const nlohmann::json& groups) {
  return derived_after({},
                       [&](const fs::path& run) {
                         record.update({{"phase", "conform"}, {"seconds", 1}, {"attempts", 1}});
                         record["groups"] = groups;
                         write_bytes(run / "phases/conform/phase.json", record.dump());
                       })
      .results;
}

TEST(Derive, SlowProgressIsAFindingWithRateFloorAndTimeLeft) {
  const nlohmann::json slow = {{"rate", 2}, {"floor", 10}, {"unit", "tok_s"}, {"eta_s", 960}};
  const nlohmann::json groups =
      nlohmann::json::array({{{"group", "g01"}, {"status", "COMPLETED"}, {"slow", slow}}});
  const Results r = with_groups({{"status", "COMPLETED"}}, groups);
  const Finding& finding = by_id(r.findings, "F-conform.SLOW");
  EXPECT_EQ(finding.code, "SLOW");
  EXPECT_EQ(finding.symptom,
            "g01 advances at 2 tok/s, the floor is 10 tok/s; 16 min 00 s left when last seen slow");
  EXPECT_EQ(finding.fact, "P-conform");
  EXPECT_EQ(r.verdict.word, "GO") << "slow progress alone decides nothing";
  for (const Finding& f : r.findings) EXPECT_NE(f.code, "HANG");
}

TEST(Derive, OnlySlowProcessesAreCalledSlow) {
  const Results r = with_groups({{"status", "COMPLETED"}},
                                {{{"group", "g01"}, {"status", "COMPLETED"}, {"slow", nullptr}}});
  for (const Finding& f : r.findings) EXPECT_NE(f.code, "SLOW");
}

TEST(Derive, MachineFaultOfAPhaseIsAFault) {
  const Results r =
      derived_after({}, [](const fs::path& run) {
        fs::remove(run / "phases/conform/g01.jsonl");
        write_bytes(
            run / "phases/conform/phase.json",
            R"({"phase": "conform", "status": "FAILED", "cause": "DISK_FULL", "reason": "no room", "seconds": 1,
                                      "attempts": 1, "groups": [{"group": "g01", "status": "FAILED", "cause": "DISK_FULL",
                                      "reason": "no room", "infrastructure": true}]})");
      }).results;
  EXPECT_EQ(r.verdict.exit, 3);
  EXPECT_EQ(by_id(r.findings, "F-conform.phase").code, "DISK_FULL");
  EXPECT_EQ(by_id(r.criteria, "C-CONFORM").verdict, CriterionVerdict::kNotEvaluated);
}

}  // namespace
}  // namespace harness

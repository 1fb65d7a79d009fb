#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "harness/cli/commands/commands.h"
#include "harness/cli/testing.h"
#include "harness/evidence/error.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/schema/error.h"

namespace harness::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// A runbook whose only phase needs no program beside this one.
class RunCommandTest : public testing::Test {
 protected:
  void SetUp() override {
    write_bytes(dir_ / "tiny.json", R"({"schema": "nsa-runbook/1", "name": "tiny", "title": "t",
      "scope": "nothing", "device": "cpu", "phases": [{"id": "selftest", "title": "files only",
      "run": "builtin:selftest", "args": {"faults": ["P24"]}, "criteria": [{"id": "C-caught", "text": "caught",
      "metric": "selftest.faults.missed_count", "op": "==", "value": 0, "unit": "count", "severity": "blocker", "evidence": "tests"}]}]})");
    options_.configs = shipped_configs();
    options_.runbook = (dir_ / "tiny.json").string();
    options_.out = (dir_ / "run").string();
  }

  std::string error_of() {
    try {
      printed(run_command, options_);
    } catch (const std::exception& e) {
      return e.what();
    }
    return "";
  }

  /// Every file below `folder` with its bytes.
  static std::map<std::string, std::string> contents(const fs::path& folder) {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      if (entry.is_regular_file()) all[entry.path().string()] = read_bytes(entry.path());
    return all;
  }

  TempDir dir_;
  Options options_;
};

TEST_F(RunCommandTest, ARunEndsWithItsVerdictAndVerifies) {
  const Printed text = printed(run_command, options_);
  const auto results = nlohmann::json::parse(read_bytes(dir_ / "run/results.json"));
  EXPECT_EQ(text.exit_code, results["verdict"]["exit"]);
  EXPECT_THAT(text.out, testing::StartsWith(results["verdict"]["word"].get<std::string>() + "\n"));
  EXPECT_THAT(text.out, HasSubstr("ledger "));
  options_.target = options_.out;
  EXPECT_EQ(printed(verify_command, options_).exit_code, 0);
}

TEST_F(RunCommandTest, AFinishedRunIsNotResumed) {
  printed(run_command, options_);
  const auto before = contents(dir_ / "run");
  options_.resume = std::exchange(options_.out, "");
  EXPECT_THROW(printed(run_command, options_), ConfigError);
  EXPECT_THAT(error_of(), HasSubstr("has ended and its evidence is sealed"));
  EXPECT_THAT(error_of(), HasSubstr("a new measurement is a new run"));
  EXPECT_EQ(contents(dir_ / "run"), before);
}

TEST_F(RunCommandTest, ResumingAnEditedRunNamesTheFileAndWritesNothing) {
  printed(run_command, options_);
  options_.resume = std::exchange(options_.out, "");
  const auto refused_for = [&](const std::string& file) {
    const auto before = contents(dir_ / "run");
    EXPECT_THROW(printed(run_command, options_), EvidenceError);
    EXPECT_THAT(error_of(), testing::StartsWith(file + ": "));
    EXPECT_EQ(contents(dir_ / "run"), before);
  };
  const std::string runbook = read_bytes(dir_ / "run/runbook.json");
  write_bytes(dir_ / "run/runbook.json", runbook + " ");
  refused_for("runbook.json");
  write_bytes(dir_ / "run/runbook.json", runbook);
  fs::remove(dir_ / "run/phases/selftest/g01.jsonl");
  refused_for("phases/selftest/g01.jsonl");
  write_bytes(dir_ / "run/ledger.jsonl", "");
  refused_for("ledger.jsonl");
}

TEST_F(RunCommandTest, ARunWithoutItsLedgerResumesToTheSameEvidence) {
  printed(run_command, options_);
  const std::string raw = read_bytes(dir_ / "run/phases/selftest/g01.jsonl");
  fs::remove(dir_ / "run/ledger.jsonl");  // cut off while the run was being closed
  options_.resume = std::exchange(options_.out, "");
  options_.json = true;
  const auto output = nlohmann::json::parse(printed(run_command, options_).out);
  EXPECT_TRUE(output.contains("ledger_head"));
  EXPECT_EQ(read_bytes(dir_ / "run/phases/selftest/g01.jsonl"), raw);
}

TEST_F(RunCommandTest, ARunbookThatIsNotTheShippedOneIsReported) {
  EXPECT_THAT(printed(run_command, options_).out,
              HasSubstr("\n  runbook  This is no shipped runbook"));
  EXPECT_THAT(read_bytes(dir_ / "run/report.md"), testing::StartsWith("**This is no shipped"));
  std::string text = read_bytes(dir_ / "tiny.json");
  fs::create_directories(dir_ / "own");
  write_bytes(dir_ / "own/smoke_cpu.json", text.replace(text.find("\"tiny\""), 6, "\"smoke_cpu\""));
  options_.runbook = (dir_ / "own/smoke_cpu.json").string();
  options_.out = (dir_ / "weak").string();
  options_.quiet = true;
  EXPECT_THAT(printed(run_command, options_).out,
              HasSubstr("This is not the shipped runbook smoke_cpu"));
}

TEST_F(RunCommandTest, TheNameOfAFolderDoesNotSteerATerminal) {
  options_.out = (dir_ / "\x1b[31mred").string();
  const Printed text = printed(run_command, options_);
  EXPECT_THAT(text.out, HasSubstr("/ [31mred/report.md"));
  EXPECT_THAT(text.out + text.err, testing::Not(HasSubstr("\x1b")));
}

TEST_F(RunCommandTest, PlacesThatCannotTakeARunAreNamed) {
  printed(run_command, options_);
  EXPECT_THAT(error_of(), HasSubstr("is not empty: it holds"));
  options_.out = "/proc/self/run";
  EXPECT_THAT(error_of(), HasSubstr("/proc/self/run"));
  write_bytes(dir_ / "file", "");
  options_.out = (dir_ / "file").string();
  EXPECT_THAT(error_of(), HasSubstr((dir_ / "file").string()));
  options_.out.clear();
  options_.resume = (dir_ / "none").string();
  EXPECT_THAT(error_of(), HasSubstr("no such run folder; start it without --resume"));
}

TEST_F(RunCommandTest, ResumingAnotherFolderIsRefusedByName) {
  fs::create_directories(dir_ / "empty");
  options_.resume = (dir_ / "empty").string();
  EXPECT_THAT(error_of(), HasSubstr("holds no run.json, so no run has begun there"));
}

TEST_F(RunCommandTest, ARunOfAnotherBuildIsNotResumed) {
  printed(run_command, options_);
  fs::remove(dir_ / "run/ledger.jsonl");
  auto environment = nlohmann::json::parse(read_bytes(dir_ / "run/environment.json"));
  environment["build"]["build_id"] = "another";
  write_bytes(dir_ / "run/environment.json", environment.dump());
  options_.resume = std::exchange(options_.out, "");
  EXPECT_THAT(error_of(), HasSubstr("the run was begun with build id \"another\""));
}

/// Runs a runbook whose only criterion is that no test of CI failed.
class CiRunTest : public RunCommandTest {
 protected:
  std::string word_for(const std::string& junit) {
    write_bytes(dir_ / "ci_only.json",
                R"({"schema": "nsa-runbook/1", "name": "ci_only", "title": "CI",
      "scope": "CI", "device": "cpu", "phases": [{"id": "ci", "title": "CI",
      "run": "builtin:ci_status", "require": {"ci.status": "given"}, "criteria": [{"id": "C-ci",
      "text": "green", "metric": "ci.tests.failed_count", "op": "==", "value": 0, "unit": "count",
      "severity": "blocker", "evidence": "record"}]}]})");
    write_bytes(dir_ / "junit.xml", junit);
    options_.runbook = (dir_ / "ci_only.json").string();
    options_.out = (dir_ / ("run" + std::to_string(++runs_))).string();
    options_.ci_status = (dir_ / "junit.xml").string();
    options_.json = true;
    const Printed run = printed(run_command, options_);
    const auto verdict = nlohmann::json::parse(run.out)["verdict"];
    EXPECT_EQ(run.exit_code == 0, verdict["word"] == "GO") << run.out;
    return verdict["word"];
  }

  int runs_ = 0;
};

TEST_F(CiRunTest, OnlyTestsThatRanGiveGo) {
  const std::string passed = "<testsuite><testcase name='a'/></testsuite>",
                    failed = "<testsuite><testcase name='b'><error/></testcase></testsuite>";
  EXPECT_EQ(word_for(passed), "GO");
  EXPECT_EQ(word_for(failed), "NO-GO");
  EXPECT_EQ(word_for(passed + failed), "NO-GO") << "the second of two roots failed";
  for (const std::string& undecided :
       {passed + passed, std::string("<testsuite tests='0'/>"), std::string(),
        std::string("<testsuite><testcase name='a' status='disabled'/></testsuite>"),
        std::string("<testsuite><testcase name='a' status='notrun' result='suppressed'/>"
                    "</testsuite>"),
        std::string("<testsuite failures='1'><testcase name='a'/></testsuite>")})
    EXPECT_NE(word_for(undecided), "GO") << undecided;
}

}  // namespace
}  // namespace harness::cli

#include "harness/evidence/storage/run_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/evidence/mini_run.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"

namespace harness {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class RunFilesTest : public testing::Test {
 protected:
  void SetUp() override { write_mini_run(dir_.path()); }

  void put(const std::string& file, const json& content) const {
    write_bytes(dir_ / file, content.dump());
  }
  template <class Change>
  void edit(const std::string& file, Change change) const {
    json content = json::parse(read_bytes(dir_ / file));
    change(content);
    put(file, content);
  }
  RunFiles files() const { return read_run_files(RunFolder(dir_.path())); }
  std::string refusal() const {
    try {
      files();
    } catch (const EvidenceError& error) {
      return error.what();
    }
    return "read";
  }
  PhaseEnd end_of(const std::string& phase) const {
    for (const PlannedPhase& planned : files().plan.phases)
      if (planned.id == phase) return read_phase_end(RunFolder(dir_.path()), planned);
    throw std::runtime_error("no phase " + phase);
  }
  std::string refusal_of(const std::string& phase) const {
    try {
      end_of(phase);
    } catch (const EvidenceError& error) {
      return error.what();
    }
    return "read";
  }
  TempDir dir_;
};

TEST_F(RunFilesTest, AreWhatWasWrittenBeforeTheFirstPhase) {
  const RunFiles read = files();
  EXPECT_EQ(read.run.runbook, "mini");
  EXPECT_EQ(read.runbook.phases.size(), 3u);
  EXPECT_EQ(read.plan.phases.size(), 3u);
  EXPECT_TRUE(read.kinds.contains("mini_speed"));
  EXPECT_EQ(read.environment["build"]["build_id"], "mini-build");
}

TEST_F(RunFilesTest, EveryOneIsNamedWhenItIsMissingOrCutInHalf) {
  for (const char* file :
       {"run.json", "runbook.json", "kinds.json", "plan.json", "environment.json"}) {
    const std::string good = read_bytes(dir_ / file);
    write_bytes(dir_ / file, good.substr(0, good.size() / 2));
    EXPECT_THAT(refusal(), HasSubstr(file)) << "cut in half";
    EXPECT_THAT(refusal(), HasSubstr("line ")) << file;
    std::filesystem::remove(dir_ / file);
    EXPECT_THAT(refusal(), HasSubstr(file)) << "missing";
    write_bytes(dir_ / file, good);
  }
  EXPECT_EQ(refusal(), "read");
}

TEST_F(RunFilesTest, FilesThatContradictEachOtherAreRefused) {
  const std::string book = read_bytes(dir_ / "runbook.json");
  edit("runbook.json", [](json& content) { content["seed"] = 77; });
  EXPECT_THAT(refusal(), HasSubstr("is not the runbook that run.json names"));
  write_bytes(dir_ / "runbook.json", book);
  edit("plan.json", [](json& content) { content["phases"].erase(1); });
  EXPECT_THAT(refusal(), HasSubstr("plan.json"));
  EXPECT_THAT(refusal(), HasSubstr("lacks the phase 'speed' of runbook.json"));
  write_mini_run(dir_.path());
  edit("kinds.json", [](json& content) { content.erase("mini_speed"); });
  EXPECT_THAT(refusal(), HasSubstr("lacks the kind 'mini_speed' of phase 'speed'"));
}

TEST_F(RunFilesTest, AWrongTypeIsReportedWithItsPlace) {
  edit("run.json", [](json& content) { content["seed"] = "one"; });
  EXPECT_THAT(refusal(), HasSubstr("run.json"));
  EXPECT_THAT(refusal(), HasSubstr("line 1, column "));
}

/// --resume starts the programs of a plan with its switches, in folders of its names.
TEST_F(RunFilesTest, NamesThatWouldLeadElsewhereAreRefused) {
  const std::string plan = read_bytes(dir_ / "plan.json"), info = read_bytes(dir_ / "run.json");
  const auto refused = [&](auto change) {
    edit("plan.json", [&](json& content) { change(content["phases"][1]); });
    const std::string why = refusal();
    write_bytes(dir_ / "plan.json", plan);
    return why;
  };
  EXPECT_THAT(refused([](json& phase) { phase["program"] = "/bin/sh"; }),
              HasSubstr("program '/bin/sh' cannot be one"));
  EXPECT_THAT(refused([](json& phase) { phase["groups"][0]["id"] = "../../g01"; }),
              HasSubstr("process '../../g01' cannot be one"));
  EXPECT_THAT(refused([](json& phase) {
                phase["further"] = {{{"id", "x"}, {"groups", {{{"id", ".."}, {"seed", 1}}}}}};
              }),
              HasSubstr("process '..' cannot be one"));
  EXPECT_THAT(refused([](json& phase) { phase["switches"] = {{"LD_PRELOAD", "/tmp/x.so"}}; }),
              HasSubstr("switch 'LD_PRELOAD' cannot be one"));
  edit("plan.json", [](json& content) {
    json more = content["phases"][1];
    more["id"] = "../../etc";
    content["phases"].push_back(more);
  });
  EXPECT_THAT(refusal(), HasSubstr("phase '../../etc' cannot be one"));
  write_bytes(dir_ / "plan.json", plan);
  for (const char* name : {"../../mini", "", "mini\n"}) {
    edit("run.json", [&](json& content) { content["runbook"] = name; });
    EXPECT_THAT(refusal(), HasSubstr("run.json: runbook ")) << name;
  }
  write_bytes(dir_ / "run.json", info);
  EXPECT_EQ(refusal(), "read");
}

TEST_F(RunFilesTest, ThePlanSpeaksForAPhaseThatItKeptFromRunning) {
  const PhaseEnd end = end_of("cards");
  EXPECT_EQ(end.status, StepStatus::kDeferred);
  EXPECT_EQ(end.cause, "GPU_COUNT");
  EXPECT_THAT(end.reason, HasSubstr("gpu.count"));
  EXPECT_EQ(end.attempts, 0);
}

TEST_F(RunFilesTest, APhaseThatWasToRunMustHaveEnded) {
  EXPECT_EQ(end_of("speed").status, StepStatus::kCompleted);
  EXPECT_DOUBLE_EQ(end_of("speed").seconds, 0.5);
  std::filesystem::remove(dir_ / "phases/speed/phase.json");
  EXPECT_THAT(refusal_of("speed"), HasSubstr("the phase did not end; go on with --resume"));
}

TEST_F(RunFilesTest, FaultsOfTheMachineCountWhereNothingOvercameThem) {
  const json fault = {{"group", "g01"},
                      {"status", "FAILED"},
                      {"cause", "SIGNAL"},
                      {"reason", "ended by SIGKILL"},
                      {"infrastructure", true}};
  json wrong = fault, done = fault;
  wrong["infrastructure"] = false;
  done["status"] = "COMPLETED";
  const json groups = {fault, wrong, done};
  put("phases/speed/phase.json", {{"status", "FAILED"}, {"groups", groups}});
  EXPECT_THAT(end_of("speed").faults, testing::ElementsAre("speed/g01: SIGNAL, ended by SIGKILL"));
  put("phases/speed/phase.json", {{"status", "COMPLETED"}, {"groups", groups}});
  EXPECT_THAT(end_of("speed").faults, testing::IsEmpty());
}

TEST_F(RunFilesTest, SlowProcessesAreKept) {
  const json slow = {{"rate", 7.5}, {"floor", 10}, {"unit", "tok_s"}, {"eta_s", 60}};
  put("phases/speed/phase.json",
      {{"status", "COMPLETED"},
       {"groups", {{{"group", "g02"}, {"slow", slow}}, {{"slow", nullptr}}}}});
  const auto seen = end_of("speed").slow;
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].group, "g02");
  EXPECT_DOUBLE_EQ(seen[0].rate, 7.5);
  EXPECT_DOUBLE_EQ(seen[0].floor, 10);
  EXPECT_DOUBLE_EQ(seen[0].eta_s, 60);
}

TEST_F(RunFilesTest, ARecordOfOtherThingsIsNamed) {
  const auto refused = [&](const std::string& text) {
    write_bytes(dir_ / "phases/speed/phase.json", text);
    return refusal_of("speed");
  };
  EXPECT_THAT(refused(R"({"status": "DONE"})"),
              HasSubstr("status 'DONE' is none of COMPLETED, PARTIAL"));
  for (const char* text :
       {"", "[]", "7", "null", "{}", R"({"status": 7})", R"({"status": "FAILED", "cause": 7})",
        R"({"status": "FAILED", "groups": 7})", R"({"status": "FAILED", "groups": [7]})",
        R"({"status": "FAILED", "groups": [{"slow": {}}]})",
        R"({"status": "FAILED", "groups": [{"slow": 7}]})",
        R"({"status": "FAILED", "seconds": "long"})"})
    EXPECT_THAT(refused(text), HasSubstr("phases/speed/phase.json")) << text;
}

}  // namespace
}  // namespace harness

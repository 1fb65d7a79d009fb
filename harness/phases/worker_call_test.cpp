#include "harness/phases/worker_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "harness/evidence/storage/temp_dir.h"
#include "harness/phases/fake_program.h"

namespace harness {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class WorkerCallTest : public testing::Test {
 protected:
  /// A shell script as the worker; $2 is its result channel.
  WorkerAnswer answer_of(const std::string& script, double timeout_s = 20) {
    std::ofstream(dir_ / "worker") << "#!/bin/sh\n" << script;
    fs::permissions(dir_ / "worker", fs::perms::owner_all);
    WorkerCall call{.program = dir_ / "worker", .kind = "kind"};
    call.env = {{"NSA_GIVEN", "1"}};
    call.timeout_s = timeout_s;
    return call_worker(call);
  }
  TempDir dir_;
};

const std::string kHello =
    R"(echo '{"type":"hello","t":0,"v":1,"program":"fake","build_id":"","pid":1,"rank":0,"world":1,"device":"cpu"}' >>"$2"
)";
const std::string kEnd =
    R"(echo '{"type":"case","t":0,"case":"injected","status":"ok","reason":""}' >>"$2"
)";
const std::string kDone3 = R"(echo '{"type":"done","t":0,"lines":3}' >>"$2"
)";
const std::string kFailedCheck =
    R"(echo '{"type":"check","t":0,"case":"injected","id":"a/b","ok":false,"code":"C"}' >>"$2"
)";

TEST_F(WorkerCallTest, WellFormedAnswerHasItsChecks) {
  const WorkerAnswer answer = answer_of(kHello + kFailedCheck + kEnd + kDone3);
  EXPECT_EQ(answer.problem, "");
  EXPECT_EQ(answer.exit, 0);
  EXPECT_TRUE(answer.reported_anything);
  ASSERT_EQ(answer.failed_checks().size(), 1U);
  EXPECT_EQ(answer.failed_checks()[0].code, "C");
  EXPECT_EQ(answer.checks().size(), 1U);
}

TEST_F(WorkerCallTest, EveryBrokenAnswerIsAProblem) {
  for (const auto& [script, problem] : std::vector<std::pair<std::string, std::string>>{
           {"", "NO_HELLO"},
           {kHello + kEnd, "NO_DONE"},
           {kHello + "echo '{\"type\":\"done\",\"t\":0,\"lines\":1}' >>\"$2\"\n", "MISSING_CASE"},
           {kHello + kDone3, "BAD_COUNT"},
           {kHello + "echo '<script>|`' >>\"$2\"\n" + kEnd + kDone3, "GARBAGE"}})
    EXPECT_THAT(answer_of(script).problem, HasSubstr(problem)) << script;
}

TEST_F(WorkerCallTest, OnlyTheGivenSwitchesReachTheWorker) {
  ::setenv("NSA_OF_THIS_PROCESS", "1", 1);
  const WorkerAnswer answer = answer_of("env | grep ^NSA_ >&2\n");
  ::unsetenv("NSA_OF_THIS_PROCESS");
  EXPECT_EQ(answer.log, "NSA_GIVEN=1\n");
}

TEST_F(WorkerCallTest, TheCaseLineReportsWhatWasAsked) {
  const WorkerAnswer answer = answer_of("cat >&2\n");
  const base::protocol::CaseIn in = base::protocol::parse_case(answer.log);
  EXPECT_EQ(in.kind, "kind");
  ASSERT_EQ(in.cases.size(), 1U);
  EXPECT_EQ(in.cases[0].id, "injected");
}

TEST_F(WorkerCallTest, AWorkerThatNeverEndsIsEnded) {
  const WorkerAnswer answer = answer_of("exec sleep 60\n", 0.3);
  EXPECT_NE(answer.problem, "");
  EXPECT_FALSE(answer.reported_anything);
}

TEST_F(WorkerCallTest, AMissingProgramIsAProblem) {
  const WorkerAnswer answer = call_worker({.program = dir_ / "none", .kind = "kind"});
  EXPECT_NE(answer.problem, "");
  EXPECT_FALSE(answer.reported_anything);
}

}  // namespace
}  // namespace harness

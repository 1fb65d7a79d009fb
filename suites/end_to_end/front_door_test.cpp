// What the program prints about itself and about this machine.
#include <gmock/gmock.h>

#include <algorithm>

#include "suites/end_to_end/command.h"

#include "base/testing/paths.h"

namespace suites::end_to_end {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

TEST(FrontDoor, HelpFitsOneScreenAndEndsWithThreeExamples) {
  const Outcome done = validate({"--help"});
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_LE(std::count(done.output.begin(), done.output.end(), '\n'), 45);
  const size_t at = done.output.find("Examples:\n");
  ASSERT_NE(at, std::string::npos);
  std::string examples = done.output.substr(at + std::string("Examples:\n").size());
  while (examples.ends_with("\n\n")) examples.pop_back();
  EXPECT_EQ(std::count(examples.begin(), examples.end(), '\n'), 3) << examples;
  EXPECT_THAT(examples, testing::StartsWith("  nsa-validate --runbook smoke_cpu"));
}

TEST(FrontDoor, EveryProgramTeaches) {
  for (const char* name : {"nsa-validate", "nsa-worker", "nsa-tests", "nsa-train", "nsa-data",
                           "nsa-eval", "nsa-bench"}) {
    const Outcome done = run({base::build_dir() + "/bin/" + name, "--help"});
    EXPECT_EQ(done.exit_code, 0) << done.output;
    EXPECT_THAT(done.output, HasSubstr("Usage: ")) << name;
    EXPECT_THAT(done.output, HasSubstr("Example")) << name;
    EXPECT_THAT(done.output, HasSubstr("\n  " + std::string(name[4] == 'w' ? "echo" : name)))
        << name;
  }
}

TEST(FrontDoor, ADeletedWorkingDirectoryIsNamed) {
  const std::string gone = fresh_dir("deleted_directory");
  for (const char* name : {"nsa-worker", "nsa-tests", "nsa-train", "nsa-eval", "nsa-bench"}) {
    const std::string in_it = "mkdir -p " + gone + " && cd " + gone + " && rmdir " + gone +
                              " && exec " + base::build_dir() + "/bin/" + name + " --help";
    const Outcome done = run({"/bin/sh", "-c", in_it});
    EXPECT_EQ(done.exit_code, 3) << name;
    EXPECT_EQ(done.output, std::string(name) +
                               ": the working directory was deleted; change to a "
                               "folder that exists (cd DIR) and run again\n");
  }
}

/// tools/nsa-validate hands the question to the program, once it is built.
TEST(FrontDoor, EveryScriptTeaches) {
  const fs::path source = base::source_dir();
  int asked = 0;
  for (const char* folder : {"tools", "ci"})
    for (const auto& entry : fs::directory_iterator(source / folder)) {
      const auto rights = entry.status().permissions() & fs::perms::owner_exec;
      if (!entry.is_regular_file() || rights == fs::perms::none) continue;
      if (entry.path() == source / "tools/nsa-validate") continue;
      const Outcome done = run({entry.path(), "--help"});
      EXPECT_EQ(done.exit_code, 0) << entry.path();
      EXPECT_THAT(done.output, HasSubstr("Usage: ")) << entry.path();
      ++asked;
    }
  EXPECT_GE(asked, 10);
}

TEST(FrontDoor, MachineReadableOutputIsJson) {
  for (const char* name : {"runbook", "kind", "results"}) {
    const json schema = json::parse(validate({"schema", name}).output);
    EXPECT_THAT(schema["$schema"], HasSubstr("json-schema.org")) << name;
  }
  const json books = json::parse(validate({"list", "--json"}).output);
  EXPECT_TRUE(std::ranges::any_of(books, [](const json& b) { return b["name"] == "smoke_cpu"; }));
  const json rows = json::parse(validate({"doctor", "--json"}).output);
  EXPECT_FALSE(rows.empty());
  for (const json& row : rows) EXPECT_TRUE(row.contains("state") && row.contains("found")) << row;
  const json plan = json::parse(validate({"plan", "--json", "--runbook", runbook("mini")}).output);
  EXPECT_EQ(plan["phases"].size(), 3u);
}

TEST(FrontDoor, ShippedRunbooksPlan) {
  for (const json& book : json::parse(validate({"list", "--json"}).output)) {
    const Outcome done = validate({"plan", "--runbook", book["name"]});
    // 5: this machine lacks what the runbook requires, which is reported before anything runs.
    EXPECT_THAT(done.exit_code, testing::AnyOf(0, 5)) << done.output;
    EXPECT_THAT(done.output, HasSubstr("criteria can be decided on this machine"));
  }
}

/// Skips nothing: with a GPU the plan must run the phases, without one the run must defer them.
TEST(FrontDoor, SingleGpuIsUndecidedWithoutAGpu) {
  const json plan = json::parse(validate({"plan", "--json", "--runbook", "single_gpu"}).output);
  const json& phases = plan["phases"];
  const auto training = std::ranges::find(phases, "smoke", [](const json& p) { return p["id"]; });
  ASSERT_NE(training, phases.end());
  if ((*training)["decision"] != "defer") {
    EXPECT_GE(plan["facts"]["gpu.count"], 1) << "not deferred, so there is a GPU";
    return;
  }
  const fs::path dir = fresh_dir("single_gpu");
  const Outcome done = validate({"--runbook", "single_gpu", "--out", dir.string()});
  EXPECT_THAT(done.output, HasSubstr("NO-GO"));
  int deferred = 0;
  const json found = results(dir);
  for (const json& phase : found.at("phases")) deferred += phase["status"] == "DEFERRED";
  EXPECT_GE(deferred, 8);
  EXPECT_EQ(done.exit_code, 5) << done.output;
}

}  // namespace
}  // namespace suites::end_to_end

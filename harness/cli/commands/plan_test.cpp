#include <gmock/gmock.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "harness/cli/commands/commands.h"
#include "harness/cli/testing.h"

namespace harness::cli {
namespace {

using testing::HasSubstr;

Options smoke() {
  Options options;
  options.configs = shipped_configs();
  options.runbook = "smoke_cpu";
  return options;
}

TEST(PlanCommand, ShowsOrderMinutesAndWhatCanBeDecided) {
  const Printed text = printed(plan_command, smoke());
  EXPECT_THAT(text.out, HasSubstr("smoke_cpu on cpu: "));
  EXPECT_THAT(text.out, testing::ContainsRegex("environment +builtin:environment"));
  EXPECT_THAT(text.out, testing::ContainsRegex("[0-9]+ of [0-9]+ criteria can be decided"));
}

TEST(PlanCommand, LeftOutPhasesAreNotSelectedAndBlameNoMachine) {
  Options options = smoke();
  options.only = {"selftest"};
  const Printed text = printed(plan_command, options);
  EXPECT_EQ(text.exit_code, 8) << "a run would be PARTIAL at best";
  EXPECT_THAT(text.out, HasSubstr("phases: selftest; also environment, which it needs\n"));
  EXPECT_THAT(text.out, HasSubstr("not selected: left out by --only selftest"));
  EXPECT_THAT(text.out, testing::ContainsRegex("not selected: C-[a-z_0-9.]+, C-"));
  EXPECT_THAT(text.out, HasSubstr("more belong to phases that are not selected\n"));
  EXPECT_EQ(text.out.find("cannot be decided here"), std::string::npos) << text.out;
}

TEST(PlanCommand, JsonIsThePlanAsARunWritesIt) {
  Options options = smoke();
  options.json = true;
  const auto plan = nlohmann::json::parse(printed(plan_command, options).out);
  EXPECT_EQ(plan["runbook"], "smoke_cpu");
  EXPECT_FALSE(plan["phases"].empty());
}

TEST(PlanCommand, SwitchesThatWouldBeRefusedAreAnError) {
  ::setenv("NSA_SEL_RANGES_V3", "1", 1);
  const std::string error = error_of([] { printed(plan_command, smoke()); });
  ::unsetenv("NSA_SEL_RANGES_V3");
  // Where no worker was built, the error is that it was not asked.
  EXPECT_THAT(error, HasSubstr("switches of the environment: "));
  EXPECT_THAT(error, testing::AnyOf(HasSubstr("NSA_SEL_RANGES_V2"), HasSubstr("was not asked")));
}

}  // namespace
}  // namespace harness::cli

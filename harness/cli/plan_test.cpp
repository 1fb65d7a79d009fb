#include <gmock/gmock.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "harness/cli/commands.h"
#include "harness/cli/planning.h"
#include "harness/cli/testing.h"
#include "harness/schema/error.h"

namespace harness::cli {
namespace {

using testing::HasSubstr;

Options smoke() {
  Options options;
  options.configs = shipped_configs();
  options.runbook = "smoke_cpu";
  return options;
}

template <class Function>
std::string error_of(Function function) {
  try {
    function();
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "";
}

TEST(PlanCommand, ShowsOrderMinutesAndWhatCanBeDecided) {
  const Printed text = printed(plan_command, smoke());
  EXPECT_THAT(text.out, HasSubstr("smoke_cpu on cpu: "));
  EXPECT_THAT(text.out, testing::ContainsRegex("environment +builtin:environment"));
  EXPECT_THAT(text.out, testing::ContainsRegex("[0-9]+ of [0-9]+ criteria can be decided"));
}

TEST(PlanCommand, LeftOutPhasesEndWithFiveBecauseARunWould) {
  Options options = smoke();
  options.only = {"environment"};
  const Printed text = printed(plan_command, options);
  EXPECT_EQ(text.exit_code, 5);
  EXPECT_THAT(text.out, HasSubstr("not run: "));
  EXPECT_THAT(text.out, HasSubstr("cannot be decided here: C-"));
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
  // Where no worker was built the plan says that nobody was asked.
  EXPECT_THAT(error, HasSubstr("switches of the environment: "));
  EXPECT_THAT(error, testing::AnyOf(HasSubstr("NSA_SEL_RANGES_V2"), HasSubstr("was not asked")));
}

TEST(Planning, WrongOptionsNameTheirRemedy) {
  Options none = smoke();
  none.runbook.clear();
  EXPECT_THAT(error_of([&] { plan_here(none); }), HasSubstr("give --runbook NAME"));
  Options misspelt = smoke();
  misspelt.runbook = "smoke_cpi";
  EXPECT_THAT(error_of([&] { plan_here(misspelt); }), HasSubstr("did you mean 'smoke_cpu'?"));
  Options phase = smoke();
  phase.skip = {"orakle"};
  EXPECT_THAT(error_of([&] { plan_here(phase); }),
              HasSubstr("--skip 'orakle': no such phase in runbook 'smoke_cpu'"));
  Options argument = smoke();
  argument.set = {"train_text.stepps=5"};
  EXPECT_THAT(error_of([&] { plan_here(argument); }), HasSubstr("'steps'"));
  Options hostile = smoke();
  hostile.runbook = std::string("\x1b[31m\n\xff") + std::string(5000, 'x');
  const std::string error = error_of([&] { plan_here(hostile); });
  EXPECT_EQ(error.find('\x1b'), std::string::npos);
  EXPECT_LT(error.size(), 1000U);
}

}  // namespace
}  // namespace harness::cli

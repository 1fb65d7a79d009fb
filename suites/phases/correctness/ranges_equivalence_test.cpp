#include <gmock/gmock.h>

#include "nsa/switches/switches.h"
#include "suites/phases/testing.h"

namespace suites {
namespace {

/// Runs the phase with NSA_SEL_RANGES_V2 at `value`.
void run_with_switch(const RecordedCase& recorded, const std::string& value) {
  PhaseCase one = recorded.one();
  one.options = nsa::NsaOptions::from(nsa::SwitchSet::from({}, {{"NSA_SEL_RANGES_V2", value}}, {}));
  EXPECT_EQ(run_ranges_equivalence(one), "");
}

int failed_checks(const RecordedCase& recorded, const std::string& arm) {
  int failed = 0, all = 0;
  for (const nlohmann::json& check : recorded.lines("check")) {
    if (!check["id"].get<std::string>().starts_with(arm + "/")) continue;
    ++all;
    failed += !check["ok"].get<bool>();
  }
  EXPECT_GE(all, 59) << arm;
  return failed;
}

TEST(RangesEquivalence, TheSwitchChoosesTheConversionInForce) {
  for (const auto& [value, v2] : {std::pair{"0", false}, {"1", true}}) {
    const RecordedCase recorded("ranges_equivalence");
    run_with_switch(recorded, value);
    EXPECT_EQ(recorded.metric("in_force.v2_bool")["value"], v2) << value;
    EXPECT_EQ(failed_checks(recorded, "in_force"), 0) << value;
  }
  EXPECT_TRUE(honours(find_phase_kind("ranges_equivalence"), "NSA_SEL_RANGES_V2"));
  EXPECT_FALSE(honours(find_phase_kind("ranges_equivalence"), "NSA_USE_SEL_VARLEN"));
}

TEST(RangesEquivalence, AConversionThatTheSwitchDoesNotReachIsSeen) {
  const RecordedCase replaced("ranges_equivalence", {{"fault", "P07"}});
  run_with_switch(replaced, "0");  // v2 runs, whatever is asked for
  EXPECT_EQ(replaced.metric("in_force.v2_bool")["value"], true);
  for (const auto& [value, fails] : {std::pair{"0", false}, {"1", true}}) {
    const RecordedCase placeholder("ranges_equivalence", {{"fault", "P06"}});  // v2 gives zeros
    run_with_switch(placeholder, value);
    EXPECT_EQ(failed_checks(placeholder, "in_force") > 0, fails) << value;
  }
}

}  // namespace
}  // namespace suites

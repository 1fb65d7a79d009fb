#include <gtest/gtest.h>

#include "harness/fault_injection/faults/testing.h"
#include "harness/phases/fake_program.h"

namespace harness::plants {
namespace {

TEST(MachinePlants, AreSeenAndTheirTwinsAreClean) {
  expect_seen_and_twin_clean(plant_mixed_diff, control_plain_diff);   // P27
  expect_seen_and_twin_clean(plant_leftovers, control_empty_folder);  // P31
}

// P26 looks at programs and sources; the fake worker answers for the switches.
TEST(MachinePlants, ForeignProgramsAreNamedAndOwnOnesAreNot) {
  const TempDir bin;
  write_fake_worker(bin.path());
  const SelftestSetup setup{.bin_dir = bin.path()};
  const Planted planted = plant_foreign_programs(setup), control = control_own_programs(setup);
  EXPECT_TRUE(planted.as_wanted) << planted.seen;
  for (const char* named : {"program: ", "nsa/a.cpp", "notes.md"})
    EXPECT_NE(planted.seen.find(named), std::string::npos) << planted.seen;
  EXPECT_TRUE(control.as_wanted) << control.seen;
}

}  // namespace
}  // namespace harness::plants

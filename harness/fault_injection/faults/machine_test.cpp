#include <gtest/gtest.h>

#include "harness/fault_injection/faults/testing.h"
#include "harness/phases/fake_program.h"

namespace harness::injection {
namespace {

TEST(MachineFaults, AreSeenAndTheirControlsAreClean) {
  expect_seen_and_control_clean(inject_mixed_diff, control_plain_diff);   // P27
  expect_seen_and_control_clean(inject_leftovers, control_empty_folder);  // P31
}

// P26 looks at programs and sources; the fake worker answers for the switches.
TEST(MachineFaults, ForeignProgramsAreNamedAndOwnOnesAreNot) {
  const TempDir bin;
  write_fake_worker(bin.path());
  const SelftestSetup setup{.bin_dir = bin.path()};
  const Injected injected = inject_foreign_programs(setup), control = control_own_programs(setup);
  EXPECT_TRUE(injected.as_wanted) << injected.seen;
  for (const char* named : {"program: ", "nsa/a.cpp", "notes.md"})
    EXPECT_NE(injected.seen.find(named), std::string::npos) << injected.seen;
  EXPECT_TRUE(control.as_wanted) << control.seen;
}

}  // namespace
}  // namespace harness::injection

#include <gtest/gtest.h>

#include "harness/fault_injection/faults/testing.h"
#include "harness/phases/fake_program.h"

namespace harness::injection {
namespace {

// P08: the fault is caught where both programs refuse unknown names, and missed where one
// accepts it; the control is clean unless a good name is refused.
TEST(NameFaults, UnknownNamesAreSeenWhereTheyAreRefused) {
  const auto with = [](bool blind, bool alarmed, Action action) {
    const TempDir bin;
    write_fake_worker(bin.path(), blind, alarmed);
    return action({.bin_dir = bin.path()});
  };
  const Injected injected = with(false, false, inject_unknown_names);
  EXPECT_TRUE(injected.as_wanted) << injected.seen;
  for (const char* named : {"timout_s", "NSA_SEL_RANGES_V3", "NSA_DDP_BUCKET_MB"})
    EXPECT_NE(injected.seen.find(named), std::string::npos) << injected.seen;
  const Injected missed = with(true, false, inject_unknown_names);
  EXPECT_FALSE(missed.as_wanted);
  EXPECT_NE(missed.seen.find("unknown switch: accepted"), std::string::npos) << missed.seen;
  EXPECT_TRUE(with(false, false, control_known_names).as_wanted);
  EXPECT_FALSE(with(false, true, control_known_names).as_wanted) << "a false alarm";
}

TEST(NameFaults, AMissingProgramIsNeverAsWanted) {
  expect_never_as_wanted_without_programs(inject_unknown_names);
  expect_never_as_wanted_without_programs(control_known_names);
}

}  // namespace
}  // namespace harness::injection

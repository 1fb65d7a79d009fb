#include <gtest/gtest.h>

#include "harness/fault_injection/faults/testing.h"

namespace harness::injection {
namespace {

// The control of P13 starts nothing: good settings leave nothing to try.
TEST(TrainingFaults, AMissingProgramIsNeverAsWanted) {
  for (const Action action : {inject_wrong_settings, inject_lost_position, control_exact_resume})
    expect_never_as_wanted_without_programs(action);
}

}  // namespace
}  // namespace harness::injection

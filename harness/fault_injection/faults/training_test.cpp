#include <gtest/gtest.h>

#include "harness/fault_injection/faults/testing.h"

namespace harness::plants {
namespace {

// The twin of P13 starts nothing: good settings leave nothing to try.
TEST(TrainingPlants, AMissingProgramIsNeverAsWanted) {
  for (const Action action : {plant_wrong_settings, plant_lost_position, control_exact_resume})
    expect_never_as_wanted_without_programs(action);
}

}  // namespace
}  // namespace harness::plants

#include <gtest/gtest.h>

#include "harness/evidence/storage/temp_dir.h"
#include "harness/fault_injection/faults/faults.h"
#include "harness/schema/error.h"

namespace harness::injection {
namespace {

// P12 on a machine without its program, or without a device: an error or a miss, never as wanted.
TEST(DeviceFaults, HeldMemoryIsNotSeenWhereNothingHoldsIt) {
  const TempDir empty;
  EXPECT_THROW(inject_held_memory({.bin_dir = empty.path(), .device = "cuda"}), std::exception);
  EXPECT_THROW(control_free_device({.bin_dir = empty.path(), .device = "cpu"}), Error)
      << "on a CPU there is no check of a device";
}

}  // namespace
}  // namespace harness::injection

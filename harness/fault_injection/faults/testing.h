#pragma once
#include <gtest/gtest.h>

#include <string>

#include "harness/evidence/storage/temp_dir.h"
#include "harness/fault_injection/faults/faults.h"

namespace harness::plants {

using Action = Planted (*)(const SelftestSetup&);

/// The fault is seen, its twin is clean, and the fault says what was seen.
inline void expect_seen_and_twin_clean(Action plant, Action control,
                                       const SelftestSetup& setup = {}) {
  const Planted planted = plant(setup), twin = control(setup);
  EXPECT_TRUE(planted.as_wanted) << planted.seen;
  EXPECT_NE(planted.seen, "");
  EXPECT_TRUE(twin.as_wanted) << twin.seen;
}

/// With no program at all: an error or a miss, because nothing ran.
inline void expect_never_as_wanted_without_programs(Action action) {
  const TempDir empty;
  const SelftestSetup setup{.bin_dir = empty.path(),
                            .configs = std::string(NSA_SOURCE_DIR) + "/configs"};
  try {
    EXPECT_FALSE(action(setup).as_wanted);
  } catch (const std::exception&) {
    SUCCEED();  // the phase says FAULT_MISSED with the text
  }
}

}  // namespace harness::plants

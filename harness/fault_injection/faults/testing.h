#pragma once
#include <gtest/gtest.h>

#include <string>

#include "base/testing/paths.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/fault_injection/faults/faults.h"

namespace harness::injection {

using Action = Injected (*)(const SelftestSetup&);

/// The fault is seen, its control is clean, and the fault names what was seen.
inline void expect_seen_and_control_clean(Action inject, Action control,
                                          const SelftestSetup& setup = {}) {
  const Injected injected = inject(setup), clean = control(setup);
  EXPECT_TRUE(injected.as_wanted) << injected.seen;
  EXPECT_NE(injected.seen, "");
  EXPECT_TRUE(clean.as_wanted) << clean.seen;
}

/// With no program at all: an error or a miss, because nothing ran.
inline void expect_never_as_wanted_without_programs(Action action) {
  const TempDir empty;
  const SelftestSetup setup{.bin_dir = empty.path(), .configs = base::source_dir() + "/configs"};
  try {
    EXPECT_FALSE(action(setup).as_wanted);
  } catch (const std::exception&) {
    SUCCEED();  // the phase reports FAULT_MISSED with the text
  }
}

}  // namespace harness::injection

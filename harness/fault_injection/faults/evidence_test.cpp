#include <gtest/gtest.h>

#include "harness/fault_injection/faults/testing.h"

namespace harness::injection {
namespace {

TEST(EvidenceFaults, AreSeenAndTheirControlsAreClean) {
  expect_seen_and_control_clean(inject_bad_baselines, control_baseline);    // P24
  expect_seen_and_control_clean(inject_missing_data, control_whole_run);    // P25
  expect_seen_and_control_clean(inject_edits, control_untouched);           // P29
  expect_seen_and_control_clean(inject_throttling, control_steady_clocks);  // P32
}

// Evidence that is not what the faults expect of a mini run is an error, not a miss of the check.
TEST(EvidenceFaults, ReportWhatTheySaw) {
  EXPECT_NE(inject_bad_baselines({}).seen.find("missing: NOT_EVALUATED, BASELINE_INVALID"),
            std::string::npos);
  EXPECT_NE(inject_missing_data({}).seen.find("phase skipped: NOT_EVALUATED"), std::string::npos);
  const Injected edits = inject_edits({});
  for (const char* file : {"phases/speed/g01.jsonl", "results.json", "report.md"})
    EXPECT_NE(edits.seen.find(std::string("verify names ") + file), std::string::npos)
        << edits.seen;
  EXPECT_NE(inject_throttling({}).seen.find("C-SPEED is INCONCLUSIVE"), std::string::npos);
}

}  // namespace
}  // namespace harness::injection

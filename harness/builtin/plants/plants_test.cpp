#include "harness/builtin/plants/plants.h"

#include <gtest/gtest.h>

#include "harness/builtin/fake_program.h"
#include "harness/evidence/temp_dir.h"
#include "harness/schema/error.h"

namespace harness::plants {
namespace {

using Action = Planted (*)(const SelftestSetup&);

struct Row {
  const char* id;
  Action plant, control;
};

// Faults in files, changes and leftovers: the fault is seen, its twin is clean, and both say why.
TEST(Plants, WhatNeedsNoProgramIsSeenAndItsTwinIsClean) {
  for (const Row& row : {Row{"P24", plant_bad_baselines, control_baseline},
                         Row{"P25", plant_missing_data, control_whole_run},
                         Row{"P27", plant_mixed_diff, control_plain_diff},
                         Row{"P29", plant_edits, control_untouched},
                         Row{"P31", plant_leftovers, control_empty_folder},
                         Row{"P32", plant_throttling, control_steady_clocks}}) {
    const Planted planted = row.plant({}), control = row.control({});
    EXPECT_TRUE(planted.as_wanted) << row.id << ": " << planted.seen;
    EXPECT_TRUE(control.as_wanted) << row.id << ": " << control.seen;
    EXPECT_NE(planted.seen, "") << row.id;
  }
}

// P26 looks at programs and sources; the fake worker answers for the switches.
TEST(Plants, ForeignProgramsAreNamedAndOwnOnesAreNot) {
  const TempDir bin;
  write_fake_worker(bin.path());
  const SelftestSetup setup{.bin_dir = bin.path()};
  const Planted planted = plant_foreign_programs(setup), control = control_own_programs(setup);
  EXPECT_TRUE(planted.as_wanted) << planted.seen;
  for (const char* named : {"program: ", "nsa/a.cpp", "notes.md"})
    EXPECT_NE(planted.seen.find(named), std::string::npos) << planted.seen;
  EXPECT_TRUE(control.as_wanted) << control.seen;
}

// P12 on a machine without its program, or without a device: an error or a miss, never as wanted.
TEST(Plants, HeldMemoryIsNotSeenWhereNothingHoldsIt) {
  const TempDir empty;
  EXPECT_THROW(plant_held_memory({.bin_dir = empty.path(), .device = "cuda"}), std::exception);
  EXPECT_THROW(control_free_device({.bin_dir = empty.path(), .device = "cpu"}), Error)
      << "on a CPU nobody speaks of a device";
}

// Evidence that is not what the plants expect of a mini run is an error, not a miss of the check.
TEST(Plants, SayWhatTheySaw) {
  EXPECT_NE(plant_bad_baselines({}).seen.find("missing: NOT_EVALUATED, BASELINE_INVALID"),
            std::string::npos);
  EXPECT_NE(plant_missing_data({}).seen.find("phase skipped: NOT_EVALUATED"), std::string::npos);
  const Planted edits = plant_edits({});
  for (const char* file : {"phases/speed/g01.jsonl", "results.json", "report.md"})
    EXPECT_NE(edits.seen.find(std::string("verify names ") + file), std::string::npos)
        << edits.seen;
  EXPECT_NE(plant_throttling({}).seen.find("C-SPEED is INCONCLUSIVE"), std::string::npos);
}

// Neither the fault nor its twin may pass because nothing ran. (The twin of P13 starts nothing:
// good settings leave nothing to try.)
TEST(Plants, AMissingProgramIsNeverAsWanted) {
  const TempDir empty;
  const SelftestSetup setup{.bin_dir = empty.path(),
                            .configs = std::string(NSA_SOURCE_DIR) + "/configs"};
  for (const Row& row : {Row{"P08", plant_unknown_names, control_known_names},
                         Row{"P13", plant_wrong_settings, plant_wrong_settings},
                         Row{"P19", plant_lost_position, control_exact_resume},
                         Row{"P21 alone", plant_lone_rank, control_lone_rank},
                         Row{"P21 killed", plant_killed_rank, control_both_ranks}}) {
    const auto seen = [&](Action action) {
      try {
        return action(setup).as_wanted;
      } catch (const std::exception&) {
        return false;  // the phase says FAULT_MISSED with the text
      }
    };
    EXPECT_FALSE(seen(row.plant)) << row.id;
    EXPECT_FALSE(seen(row.control)) << row.id;
  }
}

}  // namespace
}  // namespace harness::plants

#include "harness/builtin/plants/plants.h"

#include <gtest/gtest.h>

#include "harness/builtin/fake_program.h"
#include "harness/evidence/files.h"
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

// P08: the fault is caught where both programs refuse what they do not know, and missed where one
// accepts it; the twin is clean unless a good name is refused.
TEST(Plants, UnknownNamesAreSeenWhereTheyAreRefused) {
  const auto with = [](bool blind, bool alarmed, Action action) {
    const TempDir bin;
    write_fake_worker(bin.path(), blind, alarmed);
    return action({.bin_dir = bin.path()});
  };
  const Planted planted = with(false, false, plant_unknown_names);
  EXPECT_TRUE(planted.as_wanted) << planted.seen;
  for (const char* named : {"timout_s", "NSA_SEL_RANGES_V3", "NSA_DDP_BUCKET_MB"})
    EXPECT_NE(planted.seen.find(named), std::string::npos) << planted.seen;
  const Planted missed = with(true, false, plant_unknown_names);
  EXPECT_FALSE(missed.as_wanted);
  EXPECT_NE(missed.seen.find("unknown switch: accepted"), std::string::npos) << missed.seen;
  EXPECT_TRUE(with(false, false, control_known_names).as_wanted);
  EXPECT_FALSE(with(false, true, control_known_names).as_wanted) << "a false alarm";
}

/// nsa-train that ends as `lone` says when it is to be one of two and alone, else well.
void write_lone_trainer(const std::filesystem::path& bin, const std::string& lone) {
  const auto path = bin / "nsa-train";
  write_bytes(path,
              "#!/bin/sh\nfor ranks; do :; done\n[ $ranks = 2 ] && [ -z \"$WORLD_SIZE\" ] && { " +
                  lone + "; }\nexit 0\n");
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
}

// P21: a process that is to be one of two ranks and is alone.
TEST(Plants, ALoneRankIsSeenWhereItIsNamed) {
  const TempDir bin;
  const SelftestSetup setup{.bin_dir = bin.path()};
  write_lone_trainer(bin.path(), "echo 'RANK_FAULT: 2 ranks asked for, 1 there' >&2; exit 1");
  EXPECT_TRUE(plant_lone_rank(setup).as_wanted) << plant_lone_rank(setup).seen;
  EXPECT_TRUE(control_lone_rank(setup).as_wanted) << control_lone_rank(setup).seen;
  EXPECT_TRUE(control_both_ranks(setup).as_wanted) << control_both_ranks(setup).seen;
  for (const char* lone : {"exit 0",                                   // trains alone
                           "exit 1",                                   // says nothing
                           "echo 'RANK_FAULT: 2 ranks'; exit 0",       // and goes on
                           "echo 'RANK_FAULT: no reason'; exit 1",     // does not say how many
                           "echo 'RANK_FAULT: 2 ranks'; kill -9 $$"})  // dies of something else
  {
    write_lone_trainer(bin.path(), lone);
    EXPECT_FALSE(plant_lone_rank(setup).as_wanted) << lone;
  }
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

#pragma once
#include "harness/fault_injection/injected_faults.h"

/// Faults that are no change of a worker: each planted from outside, with its control.
namespace harness::plants {

Planted plant_unknown_names(const SelftestSetup& setup);  ///< P08
Planted control_known_names(const SelftestSetup& setup);
Planted plant_wrong_settings(const SelftestSetup& setup);  ///< P13
Planted control_good_settings(const SelftestSetup& setup);
Planted plant_lost_position(const SelftestSetup& setup);  ///< P19
Planted control_exact_resume(const SelftestSetup& setup);
Planted plant_lone_rank(const SelftestSetup& setup);  ///< P21, too few started
Planted control_lone_rank(const SelftestSetup& setup);
Planted plant_killed_rank(const SelftestSetup& setup);  ///< P21, one lost on the way
Planted control_both_ranks(const SelftestSetup& setup);
Planted plant_bad_baselines(const SelftestSetup& setup);  ///< P24
Planted control_baseline(const SelftestSetup& setup);
Planted plant_missing_data(const SelftestSetup& setup);  ///< P25
Planted control_whole_run(const SelftestSetup& setup);
Planted plant_edits(const SelftestSetup& setup);  ///< P29
Planted control_untouched(const SelftestSetup& setup);
Planted plant_throttling(const SelftestSetup& setup);  ///< P32
Planted control_steady_clocks(const SelftestSetup& setup);
Planted plant_foreign_programs(const SelftestSetup& setup);  ///< P26
Planted control_own_programs(const SelftestSetup& setup);
Planted plant_mixed_diff(const SelftestSetup& setup);  ///< P27
Planted control_plain_diff(const SelftestSetup& setup);
Planted plant_leftovers(const SelftestSetup& setup);  ///< P31
Planted control_empty_folder(const SelftestSetup& setup);
Planted plant_held_memory(const SelftestSetup& setup);  ///< P12
Planted control_free_device(const SelftestSetup& setup);

}  // namespace harness::plants

#pragma once
#include "harness/fault_injection/injected_faults.h"

/// Faults that are no change of a worker: each injected from outside, with its control.
namespace harness::injection {

Injected inject_unknown_names(const SelftestSetup& setup);  ///< P08
Injected control_known_names(const SelftestSetup& setup);
Injected inject_wrong_settings(const SelftestSetup& setup);  ///< P13
Injected control_good_settings(const SelftestSetup& setup);
Injected inject_lost_position(const SelftestSetup& setup);  ///< P19
Injected control_exact_resume(const SelftestSetup& setup);
Injected inject_lone_rank(const SelftestSetup& setup);  ///< P21, too few started
Injected control_lone_rank(const SelftestSetup& setup);
Injected inject_lost_rank(const SelftestSetup& setup);  ///< P21, one lost on the way
Injected control_both_ranks(const SelftestSetup& setup);
Injected inject_bad_baselines(const SelftestSetup& setup);  ///< P24
Injected control_baseline(const SelftestSetup& setup);
Injected inject_missing_data(const SelftestSetup& setup);  ///< P25
Injected control_whole_run(const SelftestSetup& setup);
Injected inject_edits(const SelftestSetup& setup);  ///< P29
Injected control_untouched(const SelftestSetup& setup);
Injected inject_throttling(const SelftestSetup& setup);  ///< P32
Injected control_steady_clocks(const SelftestSetup& setup);
Injected inject_foreign_programs(const SelftestSetup& setup);  ///< P26
Injected control_own_programs(const SelftestSetup& setup);
Injected inject_mixed_diff(const SelftestSetup& setup);  ///< P27
Injected control_plain_diff(const SelftestSetup& setup);
Injected inject_leftovers(const SelftestSetup& setup);  ///< P31
Injected control_empty_folder(const SelftestSetup& setup);
Injected inject_held_memory(const SelftestSetup& setup);  ///< P12
Injected control_free_device(const SelftestSetup& setup);

}  // namespace harness::injection

#pragma once
#include <filesystem>

#include "harness/engine/builtin.h"

namespace harness {

/// Every `builtin:NAME`, for the engine. `bin_dir`: where nsa-worker lies; empty: beside this
/// program.
Builtins builtin_phases(std::filesystem::path bin_dir = {});

/// builtin:environment. Metrics build.id_matches_bool, git.commit_known_bool, git.dirty_count,
/// switches.unknown_count; checks build.id (PROVENANCE_MISMATCH naming programs and files),
/// git.clean (the files), switches.NAME (CONFIG_ERROR) and on `cuda` gpu.free (GPU_NOT_FREE naming
/// process and MiB). Reads the machine, changes nothing.
void run_environment(const std::filesystem::path& bin_dir, const BuiltinCall& call,
                     protocol::Emitter& emitter);

/// builtin:selftest. Plants every fault of `args.faults` and says a check `fault/PNN`, ok when its
/// code was reported, and a check `control/PNN`, ok when the same run without the fault is clean;
/// and the table `catch_matrix`. Throws Error naming the known ids for an unknown one.
void run_selftest(const std::filesystem::path& bin_dir, const BuiltinCall& call,
                  protocol::Emitter& emitter);

}  // namespace harness

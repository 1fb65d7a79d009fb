#pragma once
#include <filesystem>
#include <optional>

#include "harness/engine/builtin.h"

namespace harness {

/// Every `builtin:NAME`, for the engine. `bin_dir`: where nsa-worker lies; empty: beside this
/// program. `configs`: runbooks and kinds, for selftest.
Builtins builtin_phases(std::filesystem::path bin_dir = {}, std::filesystem::path configs = {});

/// builtin:environment. Metrics build.id_matches_bool, git.commit_known_bool, git.dirty_count,
/// switches.unknown_count; checks build.id (PROVENANCE_MISMATCH naming programs and files),
/// git.clean (the files), switches.NAME (CONFIG_ERROR), machine.leftovers (STALE_LEFTOVERS) and on
/// `cuda` gpu.free (GPU_NOT_FREE naming process and MiB). Reads the machine, changes nothing.
void run_environment(const std::filesystem::path& bin_dir,
                     const std::optional<std::filesystem::path>& checkout, const BuiltinCall& call,
                     base::protocol::Emitter& emitter);

/// builtin:ci_status. Metrics tests.*_count of the JUnit file args.file, check ci/tests
/// (CI_FAILED). A file that is missing, no JUnit or without a test that ran fails the case.
void run_ci_status(const BuiltinCall& call, base::protocol::Emitter& emitter);

/// builtin:binaries_ab. For every case, starts nsa-worker of args.base_bin and of args.head_bin
/// (empty: bin_dir) in the order base, base again, head, then backwards; the seed decides which
/// order is first. Samples NAME.base, NAME.base.aa and NAME.head for each entry of args.series, the
/// median of the samples of one process; checks outputs/ARM (SPEEDUP_WITHHELD); metric
/// CASE.differ_bool: the builds differ. A worker that fails fails the case.
void run_binaries_ab(const std::filesystem::path& bin_dir, const BuiltinCall& call,
                     base::protocol::Emitter& emitter);

/// builtin:checkout. The code under test: table code, metrics programs.checked_count,
/// programs.differ_count, sources.differ_count, commit.as_named_bool; check checkout.commit
/// (PROVENANCE_MISMATCH) when args.commit names one.
void run_checkout(const std::filesystem::path& bin_dir,
                  const std::optional<std::filesystem::path>& checkout, const BuiltinCall& call,
                  base::protocol::Emitter& emitter);

/// builtin:configuration. Switches as the programs of phases args.of see them beside the declared
/// ones (checks switch/PHASE/NAME: CONFIG_DRIFT), and their arguments beside args.reference; tables
/// switches and settings. Throws Error when a phase or the worker does not answer.
void run_configuration(const std::filesystem::path& bin_dir, const BuiltinCall& call,
                       base::protocol::Emitter& emitter);

/// builtin:counterfactual. When a gate on tok_s of phase args.of is not PASS, or args.always, finds
/// the cause by experiment (counterfactual.h): series base and one for each factor, metrics
/// factors.tried_count, gap.target_ratio, gap.explained_pct, table factors, finding GAP_ATTRIBUTED.
/// Otherwise nothing is run. A phase without such a gate, one that was not evaluated, or a
/// recommended setting that nsa-train lacks fails the case.
void run_counterfactual_phase(const std::filesystem::path& bin_dir, const BuiltinCall& call,
                              base::protocol::Emitter& emitter);

/// builtin:loss_gap. Losses of phases args.of and args.against of this run: metrics gap.*_nat over
/// the last args.tail steps, and both curves as heartbeats whose `line` names the phase. Curves
/// that do not end together, or lack a step, fail the case.
void run_loss_gap(const BuiltinCall& call, base::protocol::Emitter& emitter);

/// builtin:diff_scope. Checks scope/FILE and guarded/FILE (DIFF_OUT_OF_SCOPE) for every file that
/// differs from args.base; metric files.changed_count. Without base or scope, or where git does not
/// answer, the case fails: nothing was held to anything.
void run_diff_scope(const std::optional<std::filesystem::path>& checkout, const BuiltinCall& call,
                    base::protocol::Emitter& emitter);

/// builtin:forecast. Time and cost of a long run from the bounds of eta.long_run_s of phase
/// args.of, at args.price_per_gpu_hour; table forecast. Without that figure the case fails.
void run_forecast(const BuiltinCall& call, base::protocol::Emitter& emitter);

/// builtin:scaling. Rate of the phases args.of of nsa-train over that of args.base times their
/// ranks; table scaling. A phase that did not run has no figure; without the base's the case fails.
void run_scaling(const BuiltinCall& call, base::protocol::Emitter& emitter);

/// builtin:gap_analysis. The rate of phase args.of beside args.references (gap_analysis.h): metric
/// gap.reached_ratio (of the first), tables gap and causes, finding THROUGHPUT_GAP when even the
/// bounds are slower than the first. Without a rate the case fails.
void run_gap_analysis(const BuiltinCall& call, base::protocol::Emitter& emitter);

/// builtin:rate_gate. What criteria args.proceed and args.abort on one rate mean together
/// (rate_gate.h): metrics decision.proceed_bool and decision.abort_bool, null when undecided; table
/// decision; finding RATE_GATE unless it is PROCEED. Criteria of two figures fail the case.
void run_rate_gate(const BuiltinCall& call, base::protocol::Emitter& emitter);

/// builtin:threshold_edits. Compares every changed file of args.watched with args.base: criteria
/// and phases of runbooks one by one, other files by line. Check edit/FILE (THRESHOLD_EDIT without
/// args.reason), metrics edits.found_count and edits.unexplained_count, table edits. Without base,
/// or where git does not answer, the case fails.
void run_threshold_edits(const std::optional<std::filesystem::path>& checkout,
                         const BuiltinCall& call, base::protocol::Emitter& emitter);

/// builtin:selftest. Injects every fault of `args.faults` ("all": every one) and writes a check
/// `fault/PNN`, ok when its code was reported, and a check `control/PNN`, ok when the same run
/// without the fault is clean; and the table `catch_matrix`. A fault that this machine cannot show
/// is DEFERRED by name: it has a row and a check `deferred/PNN`, and counts as neither. Throws
/// Error naming the known ids for an unknown one.
void run_selftest(const std::filesystem::path& bin_dir, const std::filesystem::path& configs,
                  const BuiltinCall& call, base::protocol::Emitter& emitter);

/// builtin:dense_counterpart. Rates and peak memory of the phases args.of of nsa-train beside those
/// of args.against, in the table `dense_counterpart`; metrics pairs.compared_count and
/// memory.per_token_growth_ratio (dense_counterpart.h). A phase that did not run has empty cells.
/// Throws Error for lists of different lengths, phases that are not of nsa-train, and pairs whose
/// steps differ in shape.
void run_dense_counterpart(const BuiltinCall& call, base::protocol::Emitter& emitter);

}  // namespace harness

#pragma once
#include <functional>

#include "suites/conformance/checks/operator_checks.h"

/// The numbered invariants of docs/semantics.md. Each returns checks
/// "invariant/NAME/DTYPE/WHAT/CASE"; what throws becomes a failed check.
namespace suites {

/// 1. Tokens behind t (random, 1e4, NaN, Inf) change no output at <= t, bit for bit: one check a
/// branch (cmp, select, sel, win, o). A failure is CAUSALITY_LEAK and names branch and first
/// leaking position.
Checks check_future_perturbation(const Candidate& candidate, const OperatorCase& one);

/// 2. w >= S makes the window branch, n >= ceil(S/l') the selected branch equal dense causal
/// attention.
Checks check_full_coverage(const Candidate& candidate, const OperatorCase& one);

/// 3. Permuting KV heads with their groups permutes every output (fp64).
Checks check_group_permutation(const Candidate& candidate, const OperatorCase& one);

/// 4. Rotated q_t . k_s of constant vectors depends on t - s only and is the same in every head
/// (ROPE_PROPERTY).
Checks check_rope_property(const Candidate& candidate, const OperatorCase& one);

/// 5. Token by token gives what one batched call gives: block_idx and outputs (fp64;
/// MODE_DISAGREEMENT).
Checks check_mode_agreement(const Candidate& candidate, const OperatorCase& one);

/// 5. Prefills of different lengths in one batch (0, 1, around l, l', w, beyond w), then steps
/// through caches whose memory held NaN: every stage against the oracle under the tolerance table,
/// reads and emissions counted where loads happen against their formulas (MODE_DISAGREEMENT).
Checks check_decode(const Candidate& candidate, const OperatorCase& one);

/// 7. Directional derivatives of every branch by every differentiable input against central
/// differences (fp64).
Checks check_derivatives(const Candidate& candidate, const OperatorCase& one);

/// 9. Uniform attention (q = 0) over a power-of-two number of small integers is exact in every
/// type.
Checks check_exact_data(const Candidate& candidate, const OperatorCase& one);

/// A NaN or an infinity in K or V of one token and head changes the rows of its branch that attend
/// it (selected and <= t; in the window; inside a visible block) and no other, and makes them as
/// non-finite as the oracle's. One check an input.
Checks check_non_finite(const Candidate& candidate, const OperatorCase& one);

/// NaN around the inputs and, on a CPU, around and inside every allocation before it is written:
/// the results keep their bits, and nothing outside a tensor, no input either, is written.
Checks check_poisoned_memory(const Candidate& candidate, const OperatorCase& one);

/// Intervals that overlap, are unordered, empty, reversed or beyond t, and rows without a key,
/// given to the selected branch directly: forward and gradients against the oracle, empty rows
/// exactly 0.
Checks check_hostile_ranges(const Candidate& candidate, const OperatorCase& one);

/// An unknown switch is an error that names the nearest one; a known one that the path ignores is
/// an error that names the path (CONFIG_ERROR).
Checks check_switches(const Candidate& candidate, const OperatorCase& one);

/// All of the above that apply to the type of the case. Calls `done` with the name of each after it
/// has run, so that a caller can report progress.
Checks check_invariants(const Candidate& candidate, const OperatorCase& one,
                        const std::function<void(const char*)>& done = {});

}  // namespace suites

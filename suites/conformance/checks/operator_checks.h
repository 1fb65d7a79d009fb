#pragma once
#include <functional>

#include "suites/conformance/case_inputs.h"
#include "suites/conformance/checks/check.h"
#include "suites/faults/candidate.h"

namespace suites {

/// The checks of `run`. One below fp64 that misses its tolerance by no more than kDoubtfulExcess is
/// replaced by the same check of a second draw (same configuration, other data); its text states
/// that.
Checks confirmed(const std::function<Checks(const OperatorCase&)>& run, const OperatorCase& one);

/// Every stage's forward against the fp64 oracle evaluated on the candidate's own block_idx
/// (docs/tolerances.md): rope, compress, cmp_attn, select (scores, tie rule, exactness given the
/// scores), ranges, sel_attn, win_attn, gate. Check ids: oracle/OP/DTYPE/TENSOR/NAME. A stage that
/// throws is a failed check, not an exception.
Checks check_forward(const Candidate& candidate, const OperatorCase& one);

/// Gradients of every differentiable input against the oracle's own backward, on the candidate's
/// block_idx. Check ids: oracle/OP/DTYPE/d_INPUT/NAME.
Checks check_gradients(const Candidate& candidate, const OperatorCase& one);

/// The composed layer: its o against the oracle, its stages against the single operators bit for
/// bit, and for every range conversion that what ran is what was asked for (PATH_PROOF). Check ids:
/// oracle/layer/DTYPE/..., path/...
Checks check_layer(const Candidate& candidate, const OperatorCase& one);

/// The op families that checks name, in pipeline order.
const std::vector<std::string>& op_families();

/// The family of a check id "oracle/OP/..."; empty for other ids.
std::string op_of(const std::string& check_id);

}  // namespace suites

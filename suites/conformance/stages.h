#pragma once
#include <optional>

#include "suites/conformance/case_config.h"
#include "suites/conformance/dense_formulation.h"
#include "suites/faults/candidate.h"

namespace suites {

/// Every stage's output of a candidate; shapes as in docs/semantics.md.
struct StageOutputs {
  at::Tensor q_rot, k_sel_rot, k_win_rot, k_cmp, v_cmp;
  at::Tensor group_probs;  ///< [B,S,Hkv,N_c]; undefined for a candidate judged as a whole
  at::Tensor scores;       ///< undefined for a candidate judged as a whole that keeps none
  at::Tensor block_idx, ranges;
  at::Tensor o_cmp, o_sel, o_win, o;
  at::Tensor lse_cmp, lse_sel, lse_win;
};

/// One forward through the candidate's stages, or its layer when it is judged as a whole. With
/// `block_idx` the selected branch uses it.
StageOutputs run_stages(const Candidate& candidate, const CaseConfig& config,
                        const DenseInputs& inputs,
                        const std::optional<at::Tensor>& block_idx = std::nullopt);

/// The same result token by token: row t is computed by calls with one query that see tokens 0..t
/// and nothing else. Returns block_idx, o_cmp, o_sel, o_win and o only.
StageOutputs run_token_by_token(const Candidate& candidate, const CaseConfig& config,
                                const DenseInputs& inputs);

/// max |q||k| * scale over all branches: bounds every logit.
double max_logit(const StageOutputs& stages);

}  // namespace suites

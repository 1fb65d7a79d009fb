#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "nsa/layer/nsa_attention.h"
#include "suites/compare/selection.h"
#include "suites/conformance/checks/check.h"
#include "suites/conformance/dense_formulation.h"

/// The oracle on chosen rows, so that outputs are judged before they are timed at lengths at which
/// whole tensors cannot be.
namespace suites {

/// Positions to judge: the edges of l, d, l' and w that fit and the last token, filled up with
/// random ones to `count`. Ascending, no position twice.
std::vector<int64_t> judged_positions(const CaseConfig& config, int64_t count, uint64_t seed);

/// What a candidate computed at R chosen positions; compressed keys are whole.
struct CandidateRows {
  at::Tensor q_rot;                   ///< [B,R,Hq,dk]
  at::Tensor k_cmp;                   ///< [B,N_c,Hkv,dk]
  at::Tensor block_idx;               ///< [B,R,Hkv,n] int32
  at::Tensor o_cmp, o_sel, o_win, o;  ///< [B,R,Hq,dv]
};

/// The chosen positions of whole outputs.
CandidateRows rows_of(const nsa::NsaOutputs& out, const std::vector<int64_t>& positions);

/// Rows of several calls one behind the other; k_cmp is left undefined.
CandidateRows joined(const std::vector<CandidateRows>& parts);

/// Judges candidates on the same inputs and positions; the conversion to fp64 is paid once. Rows
/// are evaluated on the candidate's own block_idx; the selection is accepted by the rule of
/// docs/tolerances.md. For phi = mean.
class RowJudge {
 public:
  /// inputs: K and V of all S = config.tokens tokens; q and gate of the judged positions alone.
  RowJudge(const CaseConfig& config, const DenseInputs& inputs, std::vector<int64_t> positions);
  ~RowJudge();
  RowJudge(const RowJudge&) = delete;
  RowJudge& operator=(const RowJudge&) = delete;

  /// Check ids: oracle/OP/DTYPE/TENSOR/NAME.
  Checks judge(const CandidateRows& got, const std::string& name);
  /// How the selection of the last candidate was accepted, or why not.
  const SelectionReport& selection() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// `inputs` with q and gate of these positions only.
DenseInputs queries_at(const DenseInputs& inputs, const std::vector<int64_t>& positions);

}  // namespace suites

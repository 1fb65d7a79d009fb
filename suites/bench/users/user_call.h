#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "nsa/layer/nsa_attention.h"
#include "suites/bench/users/user_case.h"
#include "suites/conformance/case_inputs.h"
#include "suites/faults/candidate.h"

namespace suites {

/// nsa::attention, or nsa::attention_varlen where there is cu_seqlens, with backend auto on
/// leaves.
class UserCall {
 public:
  /// q, K, V, gate logits; K and V are those of all branches. `max_seqlen`: given to the operator.
  UserCall(const nsa::NsaConfig& config, const std::vector<at::Tensor>& tensors,
           at::Tensor cu_seqlens = {}, std::optional<int64_t> max_seqlen = {});

  at::Tensor forward() const;
  std::vector<at::Tensor> backward(const at::Tensor& o, const at::Tensor& d_o) const;
  /// The layer's call that the operator makes, without a graph: intermediate results and record.
  nsa::NsaOutputs layer() const;
  const std::vector<at::Tensor>& leaves() const { return leaves_; }

 private:
  nsa::NsaConfig config_;
  std::vector<at::Tensor> leaves_;
  at::Tensor cu_seqlens_;
  std::optional<int64_t> max_seqlen_;
};

/// The registered operator with backend auto, for checks of its gradients; `packed`: each sequence
/// of a batch is a document of one pack.
Candidate operator_candidate(bool packed);

}  // namespace suites

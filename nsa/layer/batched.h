#pragma once
#include "nsa/layer/nsa_attention.h"

namespace nsa {

/// Throws c10::Error `nsa::nsa_attention: <argument> must be ...` unless the batched inputs fit
/// each other and the configuration, and a given block_idx the inputs.
void check_call(const NsaInputs& inputs, const NsaConfig& config, const NsaOptions& options);

/// The part of it that concerns a given block_idx.
void check_block_idx(const NsaInputs& inputs, const NsaConfig& config, const NsaOptions& options);

/// nsa_attention for checked batched inputs and effective options; what runs goes to the current
/// record and not into `ran`.
NsaOutputs batched_attention(const NsaInputs& inputs, const NsaConfig& config,
                             const NsaOptions& options);

/// What the steps of a call leave.
struct Steps {
  NsaOutputs out;
  at::Tensor k_sel, k_win;  ///< as the branches read them: rotated
  /// Whether o_cmp and o_win are two of the branches as GatedSum::keeps_two has them.
  bool keeps_two() const { return !out.o_sel.defined() && out.o.defined(); }
};
/// The same call as a composition of operators, each with a node of its own in the autograd graph.
/// `compressed`: k_cmp_src and v_cmp_src are the results of compression. `keeps_two` as of
/// attend_branches.
Steps compose_attention(const NsaInputs& inputs, const NsaConfig& config, const NsaOptions& options,
                        bool compressed = false, bool keeps_two = false);

}  // namespace nsa

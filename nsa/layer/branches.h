#pragma once
#include <functional>
#include <utility>
#include <vector>

#include "nsa/layer/nsa_attention.h"

namespace nsa {

/// What the queries of a call attend to. They may be a part of longer sequences: query i stands at
/// position first_position + i, and keys of the first first_position + S tokens are there.
struct AttendedKeys {
  at::Tensor q_rot;         ///< [B, S, Hq, dk], rotated
  at::Tensor k_cmp, v_cmp;  ///< [B, N_c, Hkv, .] of first_position + S tokens
  at::Tensor k_win, v_win;  ///< [B, N_w, Hkv, .], keys rotated: the last N_w of those tokens
  /// K and V of the selected branch [B, first_position + S, Hkv, .], keys rotated, once blocks are
  /// chosen (block_idx [B, S, Hkv, n], -1: none): rows of other blocks are not read.
  std::function<std::pair<at::Tensor, at::Tensor>(const at::Tensor& block_idx)> selected;
  int64_t first_position = 0;
};

/// The three branches of these queries and their gated sum (docs/semantics.md, Stages); what runs
/// goes to the current record. gate_logits: as NsaInputs. `keeps_two`: where a kernel adds the
/// branches outside of autograd, o_cmp and o_win become two of them as GatedSum::keeps_two has it,
/// and o_sel is undefined. Throws c10::Error by name.
NsaOutputs attend_branches(const AttendedKeys& keys, const at::Tensor& gate_logits,
                           const NsaConfig& config, const NsaOptions& options,
                           bool keeps_two = false);

/// The same for several pieces of sequences. All choose their blocks before the first of them asks
/// for `selected`: where that waits for other processes, what each did so far is the same work,
/// though a late piece has more to choose from than an early one.
std::vector<NsaOutputs> attend_pieces(const std::vector<AttendedKeys>& pieces,
                                      const std::vector<at::Tensor>& gate_logits,
                                      const NsaConfig& config, const NsaOptions& options,
                                      bool keeps_two = false);

}  // namespace nsa

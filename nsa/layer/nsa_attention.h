#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "nsa/backend/backend.h"
#include "nsa/config/config.h"
#include "nsa/diagnostics/run_record.h"
#include "nsa/ops/compress/compress.h"
#include "nsa/ops/select/ranges.h"
#include "nsa/switches/switches.h"

namespace nsa {

/// Tensors of one attention call, one float type. Batched shapes; packed documents have no B axis
/// and T in the place of S, and set cu_seqlens. The K and V of several branches may be the same.
struct NsaInputs {
  at::Tensor q;            ///< [B, S, Hq, dk], not rotated
  at::Tensor k_cmp_src;    ///< [B, S, Hkv, dk], not rotated
  at::Tensor v_cmp_src;    ///< [B, S, Hkv, dv]
  at::Tensor k_sel;        ///< [B, S, Hkv, dk], not rotated
  at::Tensor v_sel;        ///< [B, S, Hkv, dv]
  at::Tensor k_win;        ///< [B, S, Hkv, dk], not rotated
  at::Tensor v_win;        ///< [B, S, Hkv, dv]
  at::Tensor gate_logits;  ///< [B, S, Hq, 3] or [B, S, Hkv, 3]; gates when config.gate is none
  at::Tensor cu_seqlens;   ///< int32 [docs + 1], or undefined for batched inputs
  PhiWeights phi_k;        ///< undefined members when config.phi is mean
  PhiWeights phi_v;
  std::optional<int64_t> max_seqlen = {};  ///< with cu_seqlens: a longer document is refused
};

struct NsaOptions {
  RangesVersion ranges = RangesVersion::kV2;
  SelBackend sel = SelBackend::kGather;
  BranchBackend cmp = BranchBackend::kPlain;
  BranchBackend win = BranchBackend::kPlain;
  bool safe_pack = true;        ///< false: `packed` may use its workspace, which has no gradient
  bool force_sel_mask = false;  ///< masked, whatever else is asked for
  bool force_parity = false;    ///< plain reference-grade operators, whatever else is asked for
  bool strict_backend = false;  ///< a backend that does not apply is an error, not a record
  bool strict_asserts = false;  ///< recompute non-finite branches; check causality (synchronises)
  bool sdpa_audit = false;      ///< record every call of the library's fused attention
  bool prefill_batched = true;  ///< false: prefill is a loop over tokens
  bool nvtx = true;             ///< name the stages for profilers
  bool keep_scores = true;      ///< false: `scores` comes back undefined (it is S x S/l' x Hkv)
  bool keep_branches = true;    ///< false: where one node of the graph computes the call, o_cmp,
                                ///< o_sel and o_win come back undefined, and the node keeps two of
                                ///< them and o, which may not be overwritten then
  at::Tensor
      block_idx;  ///< when defined: used instead of the selection. int32 or int64, any order;
                  ///< ids outside 0..floor(t/l') are unused places, repeated ones count once

  /// The switches that concern one attention call.
  static NsaOptions from(const SwitchSet& switches);
  /// What runs: force_sel_mask wins over force_parity, which wins over the chosen backends.
  NsaOptions effective() const;
};

struct NsaOutputs {
  at::Tensor o;                          ///< [B, S, Hq, dv]
  at::Tensor o_cmp, o_sel, o_win;        ///< [B, S, Hq, dv]
  at::Tensor lse_cmp, lse_sel, lse_win;  ///< [B, S, Hq], accumulation type
  at::Tensor q_rot;                      ///< [B, S, Hq, dk]
  at::Tensor k_cmp, v_cmp;               ///< [B, N_c, Hkv, .]; packed: [sum of N_c, Hkv, .]
  at::Tensor cu_cmp;                     ///< packed only: int32 [docs + 1]
  at::Tensor scores;                     ///< [B, S, Hkv, ceil(S/l')]; packed: padded with 0
  at::Tensor block_idx;                  ///< [B, S, Hkv, n] int32
  at::Tensor ranges;                     ///< [B, S, Hkv, n, 2] int32
  at::Tensor gates;                      ///< activated, shape of gate_logits, accumulation type
  at::Tensor dropped_ids;  ///< int64 scalar: ids of a given block_idx, -1 apart, that lie outside
                           ///< 0..floor(t/l') and were ignored; undefined when none was given
  std::vector<RanBackend> ran;       ///< what ran when the call returned
  std::vector<SdpaCall> sdpa_calls;  ///< with sdpa_audit
  RunRecordPtr record;               ///< the same, and what backward passes add later
};

/// Native Sparse Attention, batched mode: rotate, compress, three branches, gates. Composition of
/// the operators only; every configuration that validate() accepts, CPU and CUDA. B, S and T may be
/// 0. Throws c10::Error naming the argument, std::invalid_argument for a bad configuration.
NsaOutputs nsa_attention(const NsaInputs& inputs, const NsaConfig& config,
                         const NsaOptions& options = {});

}  // namespace nsa

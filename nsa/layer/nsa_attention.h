#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "nsa/compress/compress.h"
#include "nsa/config/config.h"
#include "nsa/select/ranges.h"
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
};

struct NsaOptions {
  RangesVersion ranges = RangesVersion::kV2;
  bool nvtx = true;         ///< name the stages for profilers
  bool keep_scores = true;  ///< false: `scores` comes back undefined (it is S x S/l' x Hkv)
  at::Tensor block_idx;     ///< when defined: used instead of the selection (int32, as in outputs)

  /// NSA_SEL_RANGES_V2 and NSA_NVTX.
  static NsaOptions from(const SwitchSet& switches);
};

/// What ran for one branch or stage, and how often.
struct RanBackend {
  std::string stage;    ///< compress, cmp_attn, select, ranges, sel_attn, win_attn, gate
  std::string backend;  ///< plain, gather, v1, v1_bulk, v2, given
  int64_t count = 0;    ///< calls
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
  std::vector<RanBackend> ran;
};

/// Native Sparse Attention, batched mode: rotate, compress, three branches, gates. Composition of
/// the operators only; every configuration that validate() accepts, CPU and CUDA. B, S and T may be
/// 0. Throws c10::Error naming the argument, std::invalid_argument for a bad configuration.
NsaOutputs nsa_attention(const NsaInputs& inputs, const NsaConfig& config,
                         const NsaOptions& options = {});

}  // namespace nsa

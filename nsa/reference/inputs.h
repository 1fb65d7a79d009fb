#pragma once
#include <cstdint>
#include <string>

#include "nsa/reference/config.h"
#include "nsa/reference/stages/compress.h"
#include "nsa/reference/tensor.h"

namespace nsa::reference {

/// What one NSA layer's attention takes; nothing is rotated yet. Also the shape of its gradients.
struct Inputs {
  Tensor<double> q;                     ///< [B,S,Hq,dk]
  Tensor<double> k_cmp_src, v_cmp_src;  ///< [B,S,Hkv,dk], [B,S,Hkv,dv]; source of compression
  Tensor<double> k_sel, v_sel;          ///< likewise; selected branch
  Tensor<double> k_win, v_win;          ///< likewise; window branch
  Tensor<double> gates;                 ///< [B,S,Hq,3] or [B,S,Hkv,3]; logits unless Gate::kNone
  PhiWeights phi_k, phi_v;
};

/// Stage values taken from elsewhere (a backend under test) instead of being computed, so that
/// every later stage is judged on the backend's own inputs. Undefined members are computed.
struct Given {
  Tensor<double> q_rot, k_sel_rot, k_win_rot;  ///< rotated q, k_sel, k_win
  Tensor<double> k_cmp, v_cmp;                 ///< [B,N_c,Hkv,dk], [B,N_c,Hkv,dv]
  Tensor<int32_t> block_idx;                   ///< [B,S,Hkv,K], any K
  Tensor<int32_t> ranges;                      ///< [B,S,Hkv,K,2], any K
};

/// Every stage of the forward pass.
struct Outputs {
  Tensor<double> q_rot;                      ///< [B,S,Hq,dk]
  Tensor<double> k_cmp, v_cmp;               ///< [B,N_c,Hkv,dk], [B,N_c,Hkv,dv]
  Tensor<double> p_cmp;                      ///< [B,S,Hq,N_c]
  Tensor<double> scores;                     ///< [B,S,Hkv,ceil(S/l')]
  Tensor<int32_t> block_idx;                 ///< [B,S,Hkv,n]
  Tensor<int32_t> ranges;                    ///< [B,S,Hkv,n,2]
  Tensor<double> o_cmp, o_sel, o_win, o;     ///< [B,S,Hq,dv]
  Tensor<double> lse_cmp, lse_sel, lse_win;  ///< [B,S,Hq]
  Tensor<int64_t> reads;                     ///< [B,S,Hkv,3] K/V pairs loaded: cmp, sel, win
};

/// Rejects an invalid configuration and every input whose shape does not follow from q and config,
/// naming the tensor, the wanted shape and the one it has.
void check_inputs(const Config& config, const Inputs& inputs);

/// As check_inputs, without q and gates; B and S follow from k_sel.
void check_keys(const Config& config, const Inputs& inputs);

/// Rejects defined members of `given` that do not fit the inputs.
void check_given(const Config& config, const Inputs& inputs, const Given& given);

/// Tokens [begin, end) of every sequence; [B,S,...] -> [B,end-begin,...]. Weights are copied.
Inputs slice_tokens(const Inputs& inputs, int64_t begin, int64_t end);

/// Sequence b alone; [B,S,...] -> [1,S,...].
Inputs slice_sequence(const Inputs& inputs, int64_t b);

}  // namespace nsa::reference

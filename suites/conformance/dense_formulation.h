#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

#include "suites/conformance/case_config.h"

/// A second formulation of docs/semantics.md: whole tensors, dense S x S masks, ATen operations
/// with autograd. It shares no code and no idea with the oracle's loops or with nsa/: no gather, no
/// ranges, no chunks. In fp64 it must agree with the oracle; in lower precision it is the "plain
/// low-precision computation" of the tolerance rule (inputs in the input type, accumulation in
/// fp32, P rounded to the input type before P*V, every stage's output rounded once).
namespace suites {

/// Weights of one phi; D is dk for keys, dv for values. Undefined tensors where the phi does not
/// use them.
struct DensePhi {
  at::Tensor conv;            ///< [D, l]
  at::Tensor pe;              ///< [l, D]
  at::Tensor w1, b1, w2, b2;  ///< [D, l*D], [D], [D, D], [D]
};

/// Un-rotated inputs of one NSA forward; all of one type, on one device.
struct DenseInputs {
  at::Tensor q;                     ///< [B,S,Hq,dk]
  at::Tensor k_cmp_src, v_cmp_src;  ///< [B,S,Hkv,dk], [B,S,Hkv,dv]
  at::Tensor k_sel, v_sel;
  at::Tensor k_win, v_win;
  at::Tensor gate;  ///< logits, or activated gates for GateKind::kNone; [B,S,Hq,3] or [B,S,Hkv,3]
  DensePhi phi_k, phi_v;
};

struct DenseAttention {
  at::Tensor o;    ///< [B,S,Hq,dv]
  at::Tensor lse;  ///< [B,S,Hq], -inf for an empty row
  at::Tensor p;    ///< [B,S,Hq,N], 0 for masked keys
};

struct DenseOutputs {
  at::Tensor q_rot, k_sel_rot, k_win_rot;
  at::Tensor k_cmp, v_cmp;  ///< [B,N_c,Hkv,.]
  DenseAttention cmp, sel, win;
  at::Tensor scores;     ///< [B,S,Hkv,ceil(S/l')], detached
  at::Tensor block_idx;  ///< [B,S,Hkv,n] int32
  at::Tensor o;          ///< [B,S,Hq,dv]
};

/// Rotates the last dimension of x [B,S,H,D] to `positions` [S] (fp64).
at::Tensor dense_rope(const at::Tensor& x, const at::Tensor& positions, double base);

/// Source [B,S,Hkv,D] -> [B,N_c,Hkv,D]; rotates keys by `config.rope` when `is_key`.
at::Tensor dense_compress(const CaseConfig& config, const at::Tensor& source,
                          const DensePhi& weights, bool is_key);

/// softmax(scale * q k^T + mask) v; mask [B|1,S,Hkv|1,N] bool, true where a key is attended.
DenseAttention dense_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const at::Tensor& mask);

/// Masks [1,S,1,N]: compressed blocks visible at t; keys of the window at t. [B,S,Hkv,S]: tokens of
/// the chosen blocks.
at::Tensor visible_mask(const CaseConfig& config);
at::Tensor window_mask(const CaseConfig& config);
at::Tensor selected_mask(const CaseConfig& config, const at::Tensor& block_idx);

/// Eqs. 9 and 10: p_cmp [B,S,Hq,N_c] -> scores [B,S,Hkv,ceil(S/l')].
at::Tensor dense_scores(const CaseConfig& config, const at::Tensor& p_cmp);

/// Eqs. 11 and 12 by one stable sort.
at::Tensor dense_select(const CaseConfig& config, const at::Tensor& scores);

/// Eq. 5.
at::Tensor dense_combine(const CaseConfig& config, const at::Tensor& gate, const at::Tensor& o_cmp,
                         const at::Tensor& o_sel, const at::Tensor& o_win);

/// Gate MLP of docs/semantics.md, Gates: un-rotated q [B,S,Hq,dk] -> logits [B,S,Hkv,3] in the
/// accumulation type.
at::Tensor dense_gate_logits(const CaseConfig& config, const at::Tensor& q, const at::Tensor& w1,
                             const at::Tensor& b1, const at::Tensor& w2, const at::Tensor& b2);

/// The whole forward. With `block_idx` [B,S,Hkv,n] the selected branch uses it instead of its own
/// selection.
DenseOutputs dense_nsa(const CaseConfig& config, const DenseInputs& inputs,
                       const std::optional<at::Tensor>& block_idx = std::nullopt);

}  // namespace suites

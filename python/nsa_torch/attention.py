"""The attention call, batched and for packed documents."""
from dataclasses import dataclass
from typing import Optional

import torch
from torch import Tensor
from typing_extensions import Unpack

from nsa_torch.settings import Settings, check


# Overloads, not packets of overloads: resolving one takes longer than a call of it.
ops = torch.ops.nsa
attention_fwd = ops.attention_fwd.default
attention_varlen_fwd = ops.attention_varlen_fwd.default
attention_qkvpacked_fwd = ops.attention_qkvpacked_fwd.default


def given(**arguments: object) -> dict:
    """The arguments that are not None; the dispatcher takes time for every one that it is handed."""
    return {name: value for name, value in arguments.items() if value is not None}


def equal_gates(q: Tensor, settings: dict) -> Tensor:
    """Gates of a call without any: every branch weighs the same (1 each where they are not activated)."""
    shape = (*q.shape[:-1], 3)
    return q.new_ones(shape) if settings.get("gate") == "none" else q.new_zeros(shape)


def nsa_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gates: Optional[Tensor] = None,
    *,
    k_cmp: Optional[Tensor] = None,
    v_cmp: Optional[Tensor] = None,
    k_sel: Optional[Tensor] = None,
    v_sel: Optional[Tensor] = None,
    k_win: Optional[Tensor] = None,
    v_win: Optional[Tensor] = None,
    block_idx: Optional[Tensor] = None,
    **settings: Unpack[Settings],
) -> Tensor:
    """Causal attention over compressed, selected and window keys, weighted by gates (paper, Eq. 5 to 12).

    q [B, S, Hq, dk], k [B, S, Hkv, dk], v [B, S, Hkv, dv]: one of float64, float32, bfloat16, float16, any strides, not
    rotated unless rope="none". gates [B, S, Hq or Hkv, 3]: logits in the order compressed, selected, window; None: equal.
    k_sel, v_sel, k_win, v_win: keys and values of single branches; absent: k and v. k_cmp, v_cmp [B, N_c, Hkv, .]: the
    results of another compression than the mean. block_idx [B, S, Hkv, K] int32 or int64: blocks to attend instead of the
    selection, a set in any order; ids outside 0..floor(t / sel_block_size) are unused places.
    Settings: see Settings. Returns [B, S, Hq, dv], type of q. Differentiable once in every floating tensor.
    Raises ValueError, TypeError (a data type) or NotImplementedError naming the argument, its value and what is wanted.
    """
    check("nsa_attention", settings)
    gates = equal_gates(q, settings) if gates is None else gates
    more = given(k_cmp=k_cmp, v_cmp=v_cmp, k_sel=k_sel, v_sel=v_sel, k_win=k_win, v_win=v_win, block_idx=block_idx)
    return attention_fwd(q, k, v, gates, **more, **settings)[0]


def nsa_attention_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gates: Optional[Tensor],
    cu_seqlens: Tensor,
    max_seqlen: Optional[int] = None,
    *,
    k_sel: Optional[Tensor] = None,
    v_sel: Optional[Tensor] = None,
    k_win: Optional[Tensor] = None,
    v_win: Optional[Tensor] = None,
    block_idx: Optional[Tensor] = None,
    **settings: Unpack[Settings],
) -> Tensor:
    """nsa_attention for packed documents: tensors [T, heads, dim].

    cu_seqlens int32 or int64 [documents + 1] starts at 0, never falls and ends at T. Positions, blocks and the window
    restart in each document. max_seqlen: the most tokens of a document. With it the CUDA kernels compute all documents
    without a host synchronisation, and tokens from max_seqlen on, or outside of all documents, are NaN; without it, and
    elsewhere, the offsets are read, and bad ones or longer documents raise ValueError.
    """
    check("nsa_attention_varlen", settings)
    gates = equal_gates(q, settings) if gates is None else gates
    more = given(k_sel=k_sel, v_sel=v_sel, k_win=k_win, v_win=v_win, block_idx=block_idx, max_seqlen=max_seqlen)
    return attention_varlen_fwd(q, k, v, gates, cu_seqlens.to(torch.int32), **more, **settings)[0]


def nsa_attention_qkvpacked(
    qkv: Tensor,
    gates: Optional[Tensor] = None,
    *,
    num_heads: int,
    num_kv_heads: int,
    v_head_dim: Optional[int] = None,
    k_cmp: Optional[Tensor] = None,
    v_cmp: Optional[Tensor] = None,
    k_sel: Optional[Tensor] = None,
    v_sel: Optional[Tensor] = None,
    k_win: Optional[Tensor] = None,
    v_win: Optional[Tensor] = None,
    block_idx: Optional[Tensor] = None,
    **settings: Unpack[Settings],
) -> Tensor:
    """nsa_attention of one projection, as one linear layer gives it; its gradient is one tensor.

    qkv [B, S, num_heads * dk + num_kv_heads * (dk + dv)]: in a token's row q of all query heads, then k of all KV heads,
    then v of all KV heads; read as views. v_head_dim: dv, dk where absent; dk follows from the width. A tensor
    [B, S, num_heads + 2 * num_kv_heads, d] is qkv.flatten(2). gates [B, S, num_heads or num_kv_heads, 3], the other
    arguments and the result as in nsa_attention. Raises ValueError where no whole dk gives the width.
    """
    check("nsa_attention_qkvpacked", settings)
    if gates is None:
        gates = equal_gates(qkv.unsqueeze(-2).expand(*qkv.shape[:-1], num_heads, qkv.shape[-1]), settings)
    more = given(k_cmp=k_cmp, v_cmp=v_cmp, k_sel=k_sel, v_sel=v_sel, k_win=k_win, v_win=v_win, block_idx=block_idx)
    return attention_qkvpacked_fwd(qkv, gates, num_heads, num_kv_heads, v_head_dim, **more, **settings)[0]


@dataclass(frozen=True)
class Explanation:
    """What computes a call."""

    backend: str  #: fused: the CUDA kernels; cpu: the CPU kernels; plain: compositions of PyTorch operators
    obstacle: str  #: what keeps the CUDA kernels from the call; empty where they compute it

    def __str__(self) -> str:
        return self.backend + (f" ({self.obstacle})" if self.obstacle else "")


def explain(q: Tensor, k: Tensor, v: Tensor, gates: Optional[Tensor] = None, **settings: Unpack[Settings]) -> Explanation:
    """Which code nsa_attention(q, k, v, gates, **settings) runs, and why. Nothing is computed."""
    check("explain", settings)
    gates = equal_gates(q, settings) if gates is None else gates
    if settings.get("backend") == "plain":
        return Explanation("plain", 'backend="plain" was asked for')
    obstacle = ops.why_not_fused(q, k, v, gates, **settings)
    if settings.get("backend") == "fused" and obstacle:
        return Explanation("plain", obstacle)
    return Explanation(ops.which_backend(q, k, v, gates, **settings), obstacle)

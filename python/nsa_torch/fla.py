"""A drop-in for flash-linear-attention's NSA: change the import, keep the call."""
from typing import Optional, Union

import torch
from torch import Tensor

from nsa_torch.attention import nsa_attention, nsa_attention_varlen

FORCED = 3  # the first block, the current one and the one before it


def parallel_nsa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g_cmp: Optional[Tensor] = None,
    g_slc: Optional[Tensor] = None,
    g_swa: Optional[Tensor] = None,
    block_indices: Optional[Tensor] = None,
    block_counts: Union[int, Tensor] = 16,
    block_size: int = 64,
    window_size: int = 0,
    scale: Optional[float] = None,
    cu_seqlens: Optional[Tensor] = None,
) -> Tensor:
    """NSA with the signature and the semantics of fla.ops.nsa.parallel_nsa.

    q [B, T, HQ, K], k [B, T, H, K], v [B, T, H, V]: rotated already; one K and V for the three branches. g_cmp, g_slc,
    g_swa [B, T, HQ]: activated gates; without g_cmp there is no compressed branch, and block_indices [B, T, H, S] must
    name the blocks; with it blocks are selected, block_counts of them (at least 3), and block_indices is not read.
    A missing g_slc or g_swa is 1. window_size 0: no window branch. cu_seqlens [N + 1]: packed documents, B = 1; block
    indices count in their document. Returns [B, T, HQ, V].

    Blocks are means of block_size keys, at every block_size-th token; the first, the current and the previous block are
    always selected. Where flash-linear-attention differs from itself or from the paper:
    - scale (default K ** -0.5) holds for the compressed and the selected branch; the window's is always K ** -0.5, as there.
    - block_indices is a set: an index that stands twice counts once (there twice).
    - block_counts as a tensor (a number for each query) is refused.
    Raises ValueError, TypeError or NotImplementedError naming the argument.
    """
    if not isinstance(block_counts, int):
        raise NotImplementedError(
            f"parallel_nsa: block_counts must be one int for all queries, got {type(block_counts).__name__}; "
            "mark unused places of block_indices with -1"
        )
    if g_cmp is None and block_indices is None:
        raise ValueError("parallel_nsa: g_cmp or block_indices must be given, got neither: nothing names the blocks")
    if g_cmp is not None and block_counts < FORCED:
        raise ValueError(
            f"parallel_nsa: block_counts must be at least {FORCED}, the first, previous and current block, got {block_counts}"
        )
    if cu_seqlens is not None and q.shape[0] != 1:
        raise ValueError(f"parallel_nsa: q must have batch size 1 with cu_seqlens, got {q.shape[0]}")
    ones = q.new_ones(q.shape[:-1])
    gates = [q.new_zeros(q.shape[:-1]) if g_cmp is None else g_cmp]
    gates += [ones if g is None else g for g in (g_slc, g_swa)]
    settings = dict(
        block_size=block_size,
        block_stride=block_size,
        sel_block_size=block_size,
        top_n=max(FORCED, block_counts),
        num_initial=1,
        num_local=2,
        window=window_size,
        scale_cmp=scale,
        scale_sel=scale,
        gate="none",
        rope="none",
    )
    arguments = [q, k, v, torch.stack(gates, -1)]
    block_idx = block_indices if g_cmp is None else None
    if cu_seqlens is None:
        return nsa_attention(*arguments, block_idx=block_idx, **settings)
    packed = [x.squeeze(0) for x in arguments]
    block_idx = None if block_idx is None else block_idx.squeeze(0)
    return nsa_attention_varlen(*packed, cu_seqlens, block_idx=block_idx, **settings).unsqueeze(0)

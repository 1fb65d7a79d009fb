"""The layer around the attention call."""
from typing import Optional

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from nsa_torch.attention import nsa_attention, nsa_attention_varlen
from nsa_torch.decode import DecodeCache
from nsa_torch.settings import Settings, check


class NSAttention(nn.Module):
    """Projections of q, k, v and of the gates, the attention, and the projection of its output; no biases.

    shared_kv=True: one K and V for the three branches. False: k_proj and v_proj give each branch its own, in the order
    compressed, selected, window. Parameters: q_proj, k_proj, v_proj, g_proj [3 * num_heads, dim], o_proj; with one K and V
    and gate="sigmoid" they are those of flash-linear-attention's layer and of the NSA-1B checkpoints.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        num_kv_heads: int,
        *,
        head_dim: Optional[int] = None,
        v_head_dim: Optional[int] = None,
        shared_kv: bool = True,
        **settings: Unpack[Settings],
    ) -> None:
        super().__init__()
        check("NSAttention", settings)
        if num_kv_heads < 1 or num_heads % num_kv_heads:
            raise ValueError(f"NSAttention: num_heads must be a multiple of num_kv_heads = {num_kv_heads}, got {num_heads}")
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        self.head_dim = head_dim or dim // num_heads
        self.v_head_dim = v_head_dim or self.head_dim
        self.shared_kv, self.settings = shared_kv, settings
        sets = 1 if shared_kv else 3
        self.q_proj = nn.Linear(dim, num_heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(dim, sets * num_kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(dim, sets * num_kv_heads * self.v_head_dim, bias=False)
        self.g_proj = nn.Linear(dim, num_heads * 3, bias=False)
        self.o_proj = nn.Linear(num_heads * self.v_head_dim, dim, bias=False)

    def forward(self, x: Tensor, cu_seqlens: Optional[Tensor] = None, cache: Optional[DecodeCache] = None) -> Tensor:
        """x [B, S, dim], or packed [T, dim] with cu_seqlens [documents + 1] -> same shape.

        With a cache (make_cache), x holds the next S tokens of every sequence.
        """
        q = self.q_proj(x).unflatten(-1, (self.num_heads, self.head_dim))
        k = self.k_proj(x).unflatten(-1, (-1, self.num_kv_heads, self.head_dim)).unbind(-3)
        v = self.v_proj(x).unflatten(-1, (-1, self.num_kv_heads, self.v_head_dim)).unbind(-3)
        gates = self.g_proj(x).unflatten(-1, (self.num_heads, 3))
        own = {} if self.shared_kv else dict(k_sel=k[1], v_sel=v[1], k_win=k[2], v_win=v[2])
        if cache is not None:
            o = cache.decode(q, k[0], v[0], gates, **own)
        elif cu_seqlens is not None:
            o = nsa_attention_varlen(q, k[0], v[0], gates, cu_seqlens, **own, **self.settings)
        else:
            o = nsa_attention(q, k[0], v[0], gates, **own, **self.settings)
        return self.o_proj(o.flatten(-2))

    def make_cache(self, num_sequences: int, capacity: int, *, dtype: Optional[torch.dtype] = None) -> DecodeCache:
        """A cache for this layer, on the device of its parameters; dtype: of the activations."""
        weight = self.q_proj.weight
        dims = dict(num_kv_heads=self.num_kv_heads, head_dim=self.head_dim, v_head_dim=self.v_head_dim)
        place = dict(dtype=dtype or weight.dtype, device=weight.device)
        return DecodeCache(num_sequences, capacity, **dims, **place, **self.settings)

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}, num_kv_heads={self.num_kv_heads}, shared_kv={self.shared_kv}"

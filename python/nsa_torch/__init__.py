"""Native Sparse Attention (arXiv 2502.11089) for PyTorch.

    o = nsa_torch.nsa_attention(q, k, v, gate_logits)

Importing the package registers the operators torch.ops.nsa.*; everything here is a thin layer over them.
"""
from nsa_torch import _library

__version__ = _library.load()

from nsa_torch.attention import Explanation, explain, nsa_attention, nsa_attention_qkvpacked, nsa_attention_varlen
from nsa_torch.decode import DecodeCache
from nsa_torch.fla import parallel_nsa
from nsa_torch.module import NSAttention

__all__ = [
    "DecodeCache",
    "Explanation",
    "NSAttention",
    "explain",
    "nsa_attention",
    "nsa_attention_qkvpacked",
    "nsa_attention_varlen",
    "parallel_nsa",
]
